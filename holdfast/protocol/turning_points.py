"""Turning points of an element's state size: of all samples only the local extremes are reported. Pure; document 002.

    samples  100 150 200 250 200 150 100 150        reported  250 when 200 came, 100 when the last 150 came

A turning point is known when the size has moved away from it. What moves by less than a share of the last extreme is noise:
samples are estimates, and state that is merged now and then breathes. So reports are bounded by what really changes.
"""

from __future__ import annotations

from dataclasses import dataclass

NOISE = 0.01
"""Moves of less than this share of the larger of the last two extremes are no change of direction."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an element's state at some time, and how fast it changes then (bytes per second)."""

    at: float
    size: float
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A local extreme. `rate`: how fast the size changes after it. `halved`: a minimum below half of the maximum before."""

    at: float
    size: float
    rate: float
    halved: bool = False


class TurnDetector:
    """Samples of one element in the order of time; `sample` returns a turning point when one has become known."""

    def __init__(self, noise: float = NOISE) -> None:
        self._noise = noise
        self.forget()

    def forget(self) -> None:
        """The state is another one now: what was seen before says nothing about it."""
        self.latest: Size | None = None
        """What the element answers when it is asked."""
        self._direction = 0
        self._extreme = (0.0, 0.0)
        """Time and size furthest in the present direction."""
        self._before = 0.0
        """The size at the extreme before that one."""

    def sample(self, at: float, size: float) -> Turn | None:
        latest = self.latest
        if latest is None:
            self.latest, self._extreme, self._before = Size(at, size), (at, size), size
            return None
        passed = at - latest.at
        self.latest = Size(at, size, (size - latest.size) / passed if passed > 0 else latest.rate)
        moved = size - self._extreme[1]
        if moved * self._direction > 0 or moved == 0:
            # An extreme that lasts ends where it is left: from there on the rate counts.
            self._extreme = (at, size)
            return None
        if abs(moved) <= self._noise * max(self._extreme[1], self._before):
            return None
        return self._turn(at, size, moved)

    def _turn(self, at: float, size: float, moved: float) -> Turn | None:
        begun, extreme = self._extreme
        direction, self._direction = self._direction, 1 if moved > 0 else -1
        before, self._before, self._extreme = self._before, extreme, (at, size)
        if direction == 0:  # where the samples begin is no extreme
            return None
        rate = moved / (at - begun) if at > begun else 0.0
        return Turn(begun, extreme, rate, direction < 0 and extreme < before / 2)
