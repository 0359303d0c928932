"""`Listener`: what users are told while a run goes on, in a thread of its own for each listener.

Must hold: a listener that raises, hangs or is slow harms neither the run nor other listeners. One that raises is told of once and goes
on; what waits for a slow one is bounded: of progress only the newest, of all else the oldest go.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from holdfast.errors import ConfigError
from holdfast.language.progress import Progress, progress_of
from holdfast.runtime.telling.events import (
    ResetBegun,
    RowsLate,
    RunEnded,
    RunEvent,
    RunStarted,
    Summary,
)

WAITING_MAX = 1000
"""So many calls wait for a listener."""
END_S = 5.0
"""So long the end of a run waits for its listeners."""
logger = logging.getLogger("holdfast.run")


class Listener:
    """Derive from it, override what is of interest, and hand an object to `run` or `submit`::

        class Shout(hf.Listener):
            def on_reset(self, event):
                print(f"{event.region} goes back to epoch {event.epoch}: {event.reason}")

        topology.run(store="store", until="available", listeners=[Shout()])

    Every method is called by one thread, one call after the other.
    """

    def on_started(self, event: RunStarted) -> None:
        """The run has begun: topology, store, regions, where sources begin."""

    def on_progress(self, progress: Progress) -> None:
        """About once a second, and at the end. If the listener is slow some are left out."""

    def on_reset(self, event: ResetBegun) -> None:
        """A region goes back to its newest epoch: why, and which element failed."""

    def on_late(self, event: RowsLate) -> None:
        """Rows came too late for an operator: how many since the last time, and in all."""

    def on_terminated(self, event: RunEnded) -> None:
        """The last call. `event.state`: ended, parked or failed; `event.error` says why."""


Call = tuple[Callable[[], None], bool]
"""What is to be called, and whether it is progress."""


class Listening:
    """A subscriber of a run's events that hands them to one listener."""

    def __init__(self, listener: Listener) -> None:
        if not isinstance(listener, Listener):
            raise ConfigError(
                f"{listener!r} is no listener.", cure="Give objects of classes that derive from hf.Listener."
            )
        self._listener = listener
        self._waiting: deque[Call] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._left_out = 0
        self._has_failed = False

    def __call__(self, event: RunEvent) -> None:
        on = self._listener
        match event:
            case RunStarted():
                self._offer(lambda: on.on_started(event))
            case Summary(status):
                self._offer(lambda: on.on_progress(progress_of(status)), is_progress=True)
            case ResetBegun() if event.consecutive:
                self._offer(lambda: on.on_reset(event))
            case RowsLate():
                self._offer(lambda: on.on_late(event))
            case RunEnded():
                self._offer(lambda: on.on_terminated(event))

    def close(self) -> None:
        """No more events come. Waits a little for what is waiting."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_S)
            if self._thread.is_alive():
                logger.warning("%r does not answer; the run ends without it", self._listener)
        if self._left_out:
            logger.warning("%r was too slow: %s calls were left out", self._listener, self._left_out)

    def _offer(self, call: Callable[[], None], is_progress: bool = False) -> None:
        with self._condition:
            if is_progress and self._waiting and self._waiting[-1][1]:
                self._waiting.pop()
            if len(self._waiting) == WAITING_MAX:
                self._waiting.popleft()
                self._left_out += 1
            self._waiting.append((call, is_progress))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def _run(self) -> None:
        """Thread body."""
        while True:
            with self._condition:
                while not self._waiting and not self._ended:
                    self._condition.wait()
                if not self._waiting:
                    return
                call, _ = self._waiting.popleft()
            try:
                call()
            except Exception:
                level = logging.DEBUG if self._has_failed else logging.WARNING
                self._has_failed = True
                logger.log(level, "%r failed; the run goes on", self._listener, exc_info=True)
