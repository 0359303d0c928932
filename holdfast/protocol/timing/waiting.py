"""What waiting for another minimum is worth: which minimum is small enough for the epoch of its period, with so much of that left. Pure.

The profiled curve has minima; how far the next one lay behind each, and how low it was, says what may still come. Whoever lets a minimum
of size S go with `left` seconds to the end of the period gets

    S and the growth until then, if no minimum comes in time: the epoch comes at the end;
    the next minimum, or what waiting from there is worth, if that is less.

by what followed the minima that were most like it, in the last periods: behind a low one the sum grows for long, behind a high one the next may come
soon, when operators forget one after the other. A minimum is taken unless waiting is to gain more than a little: what is
to be gained is uncertain, what is to be lost when no other one comes is much.

The same is asked when a period begins while the sum grows: of the minima behind which it grew for as long as this time at least. If nothing
as low as the size right then is to be expected in the period, its epoch comes at once. Both are answers to periods that never fall below
`s_max`, which document 002 ends with an epoch at whatever size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import pairwise

from holdfast.protocol.size_curves import Curve, Point, sizes_at

STRETCHES = 50
"""Of a period: how finely time is told."""
LIKE = 4
"""So many minima that are like one say what follows it."""
ALIVE_AT_LEAST = 3
"""Minima behind which the sum grew for as long: fewer say nothing about when it falls."""
GAIN = 0.05
"""What waiting must gain, as a share."""
UNLIKE = 0.5
"""Of its size: minima that are further away are not like it."""
MOST_MINIMA = 60
"""Of a profile; the newest count."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A minimum and what came behind it: the next one after so many stretches. `grown[n]`: by how much the size was above it after n."""

    size: float
    after: int
    grown: Sequence[float]

    def at(self, stretches: int) -> float:
        """The size so much later."""
        return self.size + self.grown[min(stretches, len(self.grown) - 1)]


@dataclass(frozen=True, slots=True)
class Patience:
    """What followed the minima of a profile, in their order. `reached[k][left]`: of what size an epoch is to be expected from minimum k on."""

    stretch_s: float
    followed: tuple[Followed, ...]
    reached: tuple[tuple[float, ...], ...]

    def takes(self, size: float, left_s: float) -> bool | None:
        """A minimum of this size is not let go, with so many seconds left. None: it is above others and like none of them, so nothing is known."""
        sizes = [one.size for one in self.followed]
        if size > min(sizes) and min(abs(one - size) for one in sizes) > UNLIKE * size:
            return None
        like = _like(size, self.followed)
        return size <= (1 + GAIN) * _waited(size, self._left(left_s), like, self.followed, self.reached)

    def takes_growing(self, size: float, grew_s: float, left_s: float) -> bool:
        """Of a sum that has been growing since a minimum `grew_s` ago, this size is not let go."""
        grew, left = max(0, round(grew_s / self.stretch_s)), self._left(left_s)
        alive = [n for n, one in enumerate(self.followed) if grew < min(one.after, len(one.grown))]
        if len(alive) < ALIVE_AT_LEAST:
            return False
        near = nsmallest(LIKE, alive, key=lambda n: abs(self.followed[n].at(grew) - size))
        waited = 0.0
        for number in near:
            one, rest = self.followed[number], self.followed[number].after - grew
            grown = one.at(grew + left) - one.at(grew)
            waited += self.reached[number + 1][left - rest] if rest <= left else size + grown
        return size <= (1 + GAIN) * waited / len(near)

    def _left(self, left_s: float) -> int:
        return min(STRETCHES, max(0, int(left_s / self.stretch_s + 1e-9)))


def patience_of(occasions: Sequence[Point], summed: Curve, period_s: float) -> Patience | None:
    """`occasions`: when it was asked whether the sum is small enough, and what it was then; `summed`: how it changed. None: they are
    too few."""
    minima, stretch = occasions[-MOST_MINIMA:], period_s / STRETCHES
    if len(minima) <= LIKE or stretch <= 0:
        return None
    followed = tuple(_followed(summed, one, other, stretch) for one, other in pairwise(minima))
    reached: list[list[float]] = [[] for _ in minima]
    like = [_like(size, followed) for _, size in minima]
    for left in range(STRETCHES + 1):
        for (_, size), known, others in zip(minima, reached, like, strict=True):
            known.append(min(size, _waited(size, left, others, followed, reached)))
    return Patience(stretch, followed, tuple(map(tuple, reached)))


def _followed(curve: Curve, one: Point, other: Point, stretch: float) -> Followed:
    # What is a moment away is one stretch away, so that waiting has an end.
    after = max(1, round((other[0] - one[0]) / stretch))
    ends = [one[0] + number * stretch for number in range(min(after, 2 * STRETCHES + 1))]
    return Followed(one[1], after, [size - one[1] for size in sizes_at(curve, ends)])


def _like(size: float, followed: Sequence[Followed]) -> list[int]:
    """The minima that are most like one."""
    return nsmallest(LIKE, range(len(followed)), key=lambda number: abs(followed[number].size - size))


def _waited(
    size: float,
    left: int,
    like: Sequence[int],
    followed: Sequence[Followed],
    reached: Sequence[Sequence[float]],
) -> float:
    """What a minimum of this size leads to if it is let go, by what followed some others."""
    found = 0.0
    for number in like:
        one = followed[number]
        found += reached[number + 1][left - one.after] if one.after <= left else size + one.grown[left]
    return found / len(like)
