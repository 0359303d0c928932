"""Permits of one operator at work: the rim of `protocol/permits.py`, a lock and a condition around the pure machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from holdfast.protocol.permits import OWNER, PermitMachine, PermitPhase
from holdfast.runtime.links.connection import Interrupted

LOOK_S = 0.05
BACKLOG_ROWS = 20_000
"""Rows that threads have submitted and nobody has taken: above this no further permit is given."""


class ThreadOver(BaseException):
    """Ends a thread of an operator: the run is over, or its instance was left behind. Not an Exception, so that the
    user's code does not catch it by accident."""


class Permits:
    """Any thread may call any method. `generation` counts the states that the operator was given."""

    def __init__(self, operator: str) -> None:
        self.condition = threading.Condition()
        self.generation = 0
        self.ended = False
        self.backlog = 0
        """Rows submitted by threads and not taken yet."""
        self.used = False
        """A thread has had one; reset by whoever takes notice, while he has all."""
        self._machine = PermitMachine(operator)
        self._since: dict[Hashable, float] = {}
        self._watch: Callable[[], bool] | None = None

    @property
    def closed(self) -> bool:
        with self.condition:
            return self._machine.phase is PermitPhase.CLOSED

    def has(self) -> bool:
        """Whether the calling thread has a permit."""
        with self.condition:
            return self._machine.has(threading.get_ident())

    def held_for(self) -> float:
        """How long the permit that is out for longest has been; 0: none is."""
        with self.condition:
            now = time.monotonic()
            return max((now - self._since.get(who, now) for who in self._machine.threads), default=0.0)

    # --- threads of the operator ------------------------------------------------------------------------------------

    def acquire(self, shared: bool) -> None:
        """Wait for a permit. ThreadOver if there will never be one."""
        who = threading.get_ident()
        with self.condition:
            while not self._machine.has(who) and self.backlog >= BACKLOG_ROWS and not self.ended:
                self.condition.wait()
            self._check_end()
            self._machine.ask(who, shared)
            while not self._machine.has(who):
                self.condition.wait()
                if self.ended:
                    self._machine.withdraw(who)
                    self._check_end()
            self._since.setdefault(who, time.monotonic())

    def release(self) -> None:
        who = threading.get_ident()
        with self.condition:
            self.used = True
            try:
                self._look()
            finally:
                self._machine.release(who)
                if not self._machine.has(who):
                    self._since.pop(who, None)
                self.condition.notify_all()

    def _look(self) -> None:
        """Before the last permit is released: is this what somebody waits for?"""
        is_watched = self._watch is not None and not self.ended and len(self._machine.threads) == 1
        if is_watched and self._watch is not None and self._watch():
            self._watch = None
            self._machine.close()

    def _check_end(self) -> None:
        if self.ended:
            raise ThreadOver

    # --- the element ------------------------------------------------------------------------------------------------

    @contextmanager
    def seized(self, give_up: Callable[[], bool]) -> Iterator[None]:
        """No thread has a permit meanwhile. Interrupted if `give_up()` is true before that."""
        with self.condition:
            self._machine.ask(OWNER)
            while not self._machine.has(OWNER):
                if give_up():
                    self._machine.withdraw(OWNER)
                    raise Interrupted
                self.condition.wait(LOOK_S)
        try:
            yield
        finally:
            with self.condition:
                self._machine.release(OWNER)
                self.condition.notify_all()

    def open(self) -> None:
        with self.condition:
            self._machine.open()
            self.condition.notify_all()

    def close(self) -> None:
        """Give no more permits; those that are out stay."""
        with self.condition:
            self._machine.close()
            self.condition.notify_all()

    def await_closed(self, give_up: Callable[[], bool]) -> bool:
        """Close and wait until no thread has a permit; False if `give_up()` is true before that."""
        with self.condition:
            self._machine.close()
            self.condition.notify_all()
            while self._machine.phase is not PermitPhase.CLOSED:
                if give_up():
                    return False
                self.condition.wait(LOOK_S)
        return True

    def watch(self, is_ready: Callable[[], bool] | None) -> None:
        """Close behind the first permit at whose end `is_ready()` is true."""
        with self.condition:
            self._watch = is_ready

    def end(self) -> None:
        """Whoever waits for a permit, or asks for one, ends."""
        with self.condition:
            self.ended = True
            self._machine.close()
            self.condition.notify_all()
