"""Named timers of one thread: what is due, and how long until something is; how long an epoch may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from holdfast.clock import Clock
from holdfast.runtime.region.holdups import Holdup, sentence

OVERDUE_S = 10.0
"""An epoch that takes longer, or longer than half of its time, is told of, with who holds it up."""
MORE_TIME_MAX = 8
"""What hangs in a task looks like work: the time does not grow beyond so many times what was asked for."""

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


class EpochTime:
    """How long an epoch may take. Of one region; used by its thread only.

    An epoch that takes too long is given up and its region goes back. If it only had to wait for steps, they are done again then, and
    take as long: the next epoch gets twice the time, so that work that makes progress comes to its end before the region is parked.
    """

    def __init__(self, limit_s: float) -> None:
        self._asked_s = limit_s
        self.limit_s = limit_s
        """Of the next epoch."""

    @property
    def overdue_s(self) -> float:
        return min(OVERDUE_S, self.limit_s / 2)

    def over(self, found: Sequence[Holdup]) -> str:
        """An epoch took too long, and these hold it up: a sentence of them."""
        if found and all(each.works for each in found):
            self.limit_s = min(2 * self.limit_s, MORE_TIME_MAX * self._asked_s)
        return sentence(found)

    def published(self) -> None:
        """An epoch is there."""
        self.limit_s = self._asked_s
