"""Named timers of one thread: what is due, and how long until something is."""

from __future__ import annotations

from typing import Generic, TypeVar

from holdfast.clock import Clock

T = TypeVar("T")


class Timers(Generic[T]):
    """Each name has one timer; setting it again moves it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set: dict[str, tuple[float, T]] = {}

    def set(self, name: str, seconds: float, what: T) -> None:
        self._set[name] = (self._clock.monotonic() + seconds, what)

    def cancel(self, name: str) -> None:
        self._set.pop(name, None)

    def due(self) -> T | None:
        """What is due first, if it is; its timer is over."""
        name = min(self._set, key=lambda each: self._set[each][0], default=None)
        if name is None or self._set[name][0] > self._clock.monotonic():
            return None
        return self._set.pop(name)[1]

    def wait_s(self, most: float) -> float:
        """How long to wait for the next one, at most so long."""
        now = self._clock.monotonic()
        return max(0.001, min([most, *(at - now for at, _ in self._set.values())]))
