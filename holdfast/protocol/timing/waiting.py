"""What waiting for another minimum is worth: which minimum is small enough for the epoch of its period, with so much of that left. Pure.

The profiled curve has minima; how far the next one lay behind each, and how low it was, says what may still come. Whoever lets a minimum
of size S go with `left` seconds to the end of the period gets

    S and the growth until then, if no minimum comes in time: the epoch comes at the end;
    the next minimum, or what waiting from there is worth, if that is less.

by what followed the minima of the profile that were most like it: behind a low one the sum grows for long, behind a high one the next may come
soon, when operators forget one after the other. A minimum is taken unless waiting is to gain more than the relaxation of `s_max`: what is
to be gained is little, what is to be lost when no other one comes is much. This is the answer to periods that never fall below
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
LIKE = 2
"""So many minima that are like one say what follows it."""
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


@dataclass(frozen=True, slots=True)
class Patience:
    """What followed the minima of a profile, in their order. `reached[k][left]`: of what size an epoch is to be expected from minimum k on."""

    stretch_s: float
    relaxation: float
    followed: tuple[Followed, ...]
    reached: tuple[tuple[float, ...], ...]

    def takes(self, size: float, left_s: float) -> bool:
        """A minimum of this size is not let go, with so many seconds left. Of one above others that is like none of them nothing is known."""
        sizes = [one.size for one in self.followed]
        if size > min(sizes) and min(abs(one - size) for one in sizes) > UNLIKE * size:
            return False
        left = min(STRETCHES, max(0, int(left_s / self.stretch_s + 1e-9)))
        like = _like(size, self.followed)
        return size <= (1 + self.relaxation) * _waited(size, left, like, self.followed, self.reached)


def patience_of(
    occasions: Sequence[Point], summed: Curve, period_s: float, relaxation: float
) -> Patience | None:
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
    return Patience(stretch, relaxation, followed, tuple(map(tuple, reached)))


def _followed(curve: Curve, one: Point, other: Point, stretch: float) -> Followed:
    # What is a moment away is one stretch away, so that waiting has an end.
    after = max(1, round((other[0] - one[0]) / stretch))
    ends = [one[0] + number * stretch for number in range(min(after, STRETCHES + 1))]
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
