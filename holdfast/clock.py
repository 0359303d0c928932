"""The clock seam. Timeouts use monotonic time; nothing that decides correctness uses a clock, but for operators that
were asked to: lifetimes in processing time."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the runtime asks of time. `monotonic` never jumps; `wall` is for people to read."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...

    def wait(self, condition: threading.Condition, timeout_s: float) -> bool: ...


class SystemClock:
    """The real clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def wait(self, condition: threading.Condition, timeout_s: float) -> bool:
        return condition.wait(timeout_s)


class ManualClock:
    """A clock that moves only when told to: `advance(seconds)`."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds

    def monotonic(self) -> float:
        with self._lock:
            return self._now

    def wall(self) -> float:
        return self.monotonic()

    def wait(self, condition: threading.Condition, timeout_s: float) -> bool:
        # A waiter under a manual clock polls: time moves only between polls.
        return condition.wait(min(timeout_s, 0.005))


class Every:
    """`due` is true at most once in so many seconds: the first time at once, or that long after the beginning."""

    def __init__(self, clock: Clock, seconds: float, *, at_once: bool = True) -> None:
        self._clock = clock
        self._seconds = seconds
        self._next = clock.monotonic() + (0.0 if at_once else seconds)

    def due(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
