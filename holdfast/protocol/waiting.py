"""What waiting for another minimum is worth: which minimum is small enough for the epoch of its period, with so much of that left. Pure.

The profiled curve has minima; how far each lies behind the one before, and how low it is, says what may still come. Whoever lets a minimum
of size S go with `left` seconds to the end of the period gets

    S and the growth until then, if no minimum comes in time: the epoch comes at the end;
    the next minimum, or what waiting from there is worth, if that is less.

A minimum is taken if waiting costs more on average. What follows depends on where the sum is: behind a low minimum it grows for long,
behind a high one the next may come soon, when the operators forget one after the other. So minima up to `s_max` and those above it are two
kinds, each with what followed it. This is the answer to periods that never fall below `s_max`, which document 002 ends with an epoch at
whatever size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.protocol.size_curves import Curve, Point, sizes_at

STRETCHES = 50
"""Of a period: how finely time is told."""
LEAST_MINIMA = 2
"""Of a kind; fewer tell nothing."""


@dataclass(frozen=True, slots=True)
class Next:
    """From one minimum to the next. `grown[n]`: by how much the size is above the first one after n stretches."""

    low: bool
    after: int
    size: float
    grown: Sequence[float]


@dataclass(frozen=True, slots=True)
class Worth:
    """Of waiting at a minimum S: share · S + rest. The share is how often no other one comes in time."""

    share: float
    rest: float

    def of(self, size: float) -> float:
        return self.share * size + self.rest


@dataclass(frozen=True, slots=True)
class Patience:
    """What waiting is worth by the stretches that are left of a period, at a low minimum and at a high one."""

    s_max: float
    stretch_s: float
    low: tuple[Worth, ...]
    high: tuple[Worth, ...]

    def takes(self, size: float, left_s: float) -> bool:
        """A minimum of this size is not let go, with so many seconds left."""
        known = self.low if size <= self.s_max else self.high
        number = int(left_s / self.stretch_s + 1e-9)
        return bool(known) and size <= known[min(max(number, 0), len(known) - 1)].of(size)


def minima_of(curve: Curve) -> list[Point]:
    """The local minima of a polyline, without its ends."""
    triples = zip(curve, curve[1:], curve[2:], strict=False)
    return [here for one, here, other in triples if one[1] > here[1] <= other[1]]


def patience_of(curve: Curve, s_max: float, period_s: float) -> Patience:
    """Of a profiled curve."""
    stretch = period_s / STRETCHES
    nexts = [_next(curve, one, other, s_max, stretch) for one, other in pairwise(minima_of(curve))]
    kinds = {low: [each for each in nexts if each.low is low] for low in (True, False)}
    worth: dict[bool, list[Worth]] = {True: [], False: []}
    for left in range(STRETCHES + 1):
        made = {low: _worth(some, left, s_max, worth) for low, some in kinds.items()}
        for low, one in made.items():
            worth[low].append(one)
    known = [tuple(worth[low]) if len(kinds[low]) >= LEAST_MINIMA else () for low in (True, False)]
    return Patience(s_max, stretch, *known)


def _next(curve: Curve, one: Point, other: Point, s_max: float, stretch: float) -> Next:
    # What is a moment away is one stretch away, so that waiting has an end.
    after = max(1, round((other[0] - one[0]) / stretch))
    ends = [one[0] + number * stretch for number in range(min(after, STRETCHES + 1))]
    return Next(one[1] <= s_max, after, other[1], [size - one[1] for size in sizes_at(curve, ends)])


def _worth(some: Sequence[Next], left: int, s_max: float, known: dict[bool, list[Worth]]) -> Worth:
    if not some:
        return Worth(1.0, 0.0)
    late = [each for each in some if each.after > left]
    rest = sum(each.grown[left] for each in late)
    for each in some:
        if each.after <= left:
            then = known[each.size <= s_max][left - each.after]
            rest += min(each.size, then.of(each.size))
    return Worth(len(late) / len(some), rest / len(some))
