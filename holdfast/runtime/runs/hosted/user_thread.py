"""A thread of its own for the user's code of one operator: a call that never returns can be left behind.

All calls into an instance come from one thread, as long as it answers. The element's thread waits for each, and looks
meanwhile whether the call still matters.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.errors import StepFailed
from holdfast.ids import OperatorName
from holdfast.runtime.links.connection import Interrupted

T = TypeVar("T")
GRACE_S = 0.5
"""A call that no longer matters may still come to its end within this time."""
LOOK_S = 0.05
MakeThread = Callable[[Callable[[], None], str], threading.Thread]


@dataclass
class Call:
    """One call into the user's code, and its outcome."""

    what: str
    function: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None

    def perform(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error
        self.done.set()


class UserThread:
    """`call` is used by the element's thread only; `busy` may be read by others."""

    def __init__(self, operator: OperatorName, make_thread: MakeThread) -> None:
        self._operator = operator
        self.make_thread = make_thread
        self._ident: int | None = None
        self._calls: queue.SimpleQueue[Call | None] | None = None
        self._under_way: tuple[str, float] | None = None
        self.limit_s: float | None = None
        """A call that takes longer has failed; None: somebody else decides."""

    def call(self, what: str, function: Callable[[], T], give_up: Callable[[], bool]) -> T:
        """Run `function` and wait for it. Interrupted once `give_up()` is true and it did not return for a while:
        the thread, and whatever it holds, is left behind."""
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            self.make_thread(self._serve(self._calls), f"user-{self._operator}").start()
        call = Call(what, function)
        self._under_way = (what, time.monotonic())
        self._calls.put(call)
        try:
            while not call.done.wait(LOOK_S):
                self._look(call, give_up)
        finally:
            self._under_way = None
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def _look(self, call: Call, give_up: Callable[[], bool]) -> None:
        assert self._under_way is not None
        age = time.monotonic() - self._under_way[1]
        is_late = self.limit_s is not None and age > self.limit_s
        if not (is_late or give_up()) or call.done.wait(GRACE_S):
            return
        self.leave()
        if is_late:
            raise StepFailed(f"{call.what} of operator {self._operator!r} has not returned for {age:.0f} s.")
        raise Interrupted

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is this one."""
        return threading.get_ident() == self._ident

    @property
    def is_alive(self) -> bool:
        """False before the first call, and after one was left behind."""
        return self._calls is not None

    def leave(self) -> None:
        """End the thread when its call returns, if it ever does."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def busy(self, now: float) -> tuple[str, float] | None:
        """What is being called, and for how long by now."""
        under_way = self._under_way
        return None if under_way is None else (under_way[0], now - under_way[1])

    def _serve(self, calls: queue.SimpleQueue[Call | None]) -> Callable[[], None]:
        def serve() -> None:
            self._ident = threading.get_ident()
            while (call := calls.get()) is not None:
                call.perform()

        return serve
