"""Turning points of an element's state size: of all samples only the local extremes are reported. Pure; document 002.

    samples  100 150 200 250 200 150 100 150        reported  250 when 200 came, 100 when the last 150 came

A turning point is known when the size has moved away from it. What moves by less than a share of the last extreme is noise:
samples are estimates, and state that is merged now and then breathes. So reports are bounded by what really changes.

A minimum is *foreseen* at its own sample, if the size has fallen by more than half and is as low as minima used to be: waiting could gain
less than the growth of one sample, which it would cost. Its rate is that of earlier rises. The document neglects the lag with which a
rate becomes known; where a step lies between two samples, it is most of what an epoch stores.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

NOISE = 0.01
"""Moves of less than this share of the larger of the last two extremes are no change of direction."""
REMEMBERED = 5
"""Minima, and rises behind them, by which the next ones are foreseen."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an element's state at some time, and how fast it changes then (bytes per second)."""

    at: float
    size: float
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A local extreme. `rate`: how fast the size changes after it. `halved`: a minimum below half of the maximum before. `foreseen`: it
    is the newest sample, and a minimum by what is known of earlier ones; the next sample may be lower all the same."""

    at: float
    size: float
    rate: float
    halved: bool = False
    foreseen: bool = False


@dataclass(frozen=True, slots=True)
class Rise:
    """From a minimum to the maximum behind it."""

    grown: float
    seconds: float
    samples: int


class TurnDetector:
    """Samples of one element in the order of time; `sample` returns a turning point when one has become known, `foreseen` is the newest
    sample if it is a minimum already."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The state is another one now: what was seen before says nothing about it."""
        self.latest: Size | None = None
        """What the element answers when it is asked."""
        self.foreseen: Turn | None = None
        self._direction = 0
        self._extreme = (0.0, 0.0)
        """Time and size furthest in the present direction."""
        self._before = 0.0
        """The size at the extreme before that one."""
        self._since = 0.0
        """When that was."""
        self._samples = 0
        """Seen since then."""
        self._lows: deque[float] = deque(maxlen=REMEMBERED)
        self._rises: deque[Rise] = deque(maxlen=REMEMBERED)

    def sample(self, at: float, size: float) -> Turn | None:
        falls = self.latest is not None and size < self.latest.size
        turn = self._sample(at, size)
        self.foreseen = self._foresee(at, size) if falls else None
        if self.foreseen is not None:
            self.latest = Size(at, size, self.foreseen.rate)
        return turn

    def _sample(self, at: float, size: float) -> Turn | None:
        latest = self.latest
        if latest is None:
            self.latest, self._extreme, self._before = Size(at, size), (at, size), size
            return None
        self._samples += 1
        passed = at - latest.at
        self.latest = Size(at, size, (size - latest.size) / passed if passed > 0 else latest.rate)
        moved = size - self._extreme[1]
        if moved * self._direction > 0 or moved == 0:
            # An extreme that lasts ends where it is left: from there on the rate counts.
            self._extreme = (at, size)
            return None
        if abs(moved) <= NOISE * max(self._extreme[1], self._before):
            return None
        return self._turn(at, size, moved)

    def _turn(self, at: float, size: float, moved: float) -> Turn | None:
        begun, extreme = self._extreme
        direction, self._direction = self._direction, 1 if moved > 0 else -1
        before, self._before, self._extreme = self._before, extreme, (at, size)
        samples, self._samples = self._samples - 1, 1
        if direction == 0:  # where the samples begin is no extreme
            self._since = begun
            return None
        since, self._since = self._since, begun
        if direction > 0:
            self._rises.append(Rise(extreme - before, begun - since, samples))
        halved = direction < 0 and extreme < before / 2
        if halved:
            self._lows.append(extreme)
        rate = moved / (at - begun) if at > begun else 0.0
        return Turn(begun, extreme, rate, halved)

    def _foresee(self, at: float, size: float) -> Turn | None:
        """The newest sample as a minimum."""
        is_low = self._direction < 0 and self._extreme == (at, size)
        samples, seconds = (
            sum(rise.samples for rise in self._rises),
            sum(rise.seconds for rise in self._rises),
        )
        if not is_low or not self._lows or not samples or seconds <= 0:
            return None
        grown = sum(rise.grown for rise in self._rises)
        if size - median(self._lows) > grown / samples:
            return None
        return Turn(at, size, grown / seconds, size < self._before / 2, foreseen=True)
