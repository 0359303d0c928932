"""State sizes over time as polylines: between two points the size is taken to change evenly. Pure; document 002.

A curve is its points (time, size) in the order of time. Before the first and behind the last it is level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

Point = tuple[float, float]
Curve = Sequence[Point]


def sizes_at(curve: Curve, times: Sequence[float]) -> list[float]:
    """Sizes at some times."""
    if not curve:
        return [0.0] * len(times)
    xs, ys = zip(*curve, strict=True)
    return [float(size) for size in np.interp(times, xs, ys)]


def total(curves: Iterable[Curve]) -> list[Point]:
    """The sum of curves: a polyline with a point wherever one of them has one."""
    some = [curve for curve in curves if curve]
    times = sorted({at for curve in some for at, _ in curve})
    if not times:
        return []
    sums = np.sum([sizes_at(curve, times) for curve in some], axis=0)
    return list(zip(times, map(float, sums), strict=True))


def between(curve: Curve, since: float, until: float) -> list[Point]:
    """The part of a curve, with points at both ends."""
    inner = [point for point in curve if since < point[0] < until]
    first, last = sizes_at(curve, [since, until])
    return [(since, first), *inner, (until, last)]


def average(curve: Curve) -> float:
    """Over the time from its first point to its last."""
    if not curve:
        return 0.0
    xs, ys = np.array(curve).T
    span = xs[-1] - xs[0]
    return float(np.sum((ys[1:] + ys[:-1]) / 2 * np.diff(xs)) / span) if span > 0 else float(ys[-1])


def lowest(curve: Curve) -> float:
    """The smallest size of a curve that has points."""
    return min(size for _, size in curve)


def settled(curve: Curve) -> list[Point]:
    """A curve from where it falls for the first time; if it never does, its last point."""
    for number, (one, other) in enumerate(pairwise(curve)):
        if other[1] < one[1]:
            return list(curve[number:])
    return list(curve[-1:])


def thinned(curve: Curve, most: int) -> list[Point]:
    """At most `most` points of a curve: of each of as many stretches as that leaves, the lowest and the highest."""
    if len(curve) <= most:
        return list(curve)
    stretches = max(1, most // 2)
    cuts = [number * len(curve) // stretches for number in range(stretches + 1)]
    kept: set[Point] = set()
    for begin, end in pairwise(cuts):
        part = curve[begin:end]
        kept |= {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
    return sorted(kept)
