"""Ratios of alternating measurements: a median with its interval, and an honest word when it is too wide."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OVERHEAD_HALF_WIDTH = 0.02
"""An overhead is a few hundredths: an interval wider than this says nothing about it."""
SPEEDUP_SHARE = 0.1
"""How many times faster: an interval may be this share of the median."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of pair ratios. `half_width` is the notch of a box plot, 1.57·IQR/√n: two medians whose notches do not
    overlap differ. Up to `half_width_max` the figure counts as conclusive."""

    median: float
    half_width: float
    pairs: tuple[float, ...]
    half_width_max: float = OVERHEAD_HALF_WIDTH

    @property
    def conclusive(self) -> bool:
        return self.half_width <= self.half_width_max

    def as_dict(self) -> dict[str, Any]:
        known = math.isfinite(self.half_width)  # JSON has no infinity
        return {
            "median": round(self.median, 4),
            "low": round(self.median - self.half_width, 4) if known else None,
            "high": round(self.median + self.half_width, 4) if known else None,
            "conclusive": self.conclusive,
            "pairs": [round(pair, 4) for pair in self.pairs],
        }

    def __str__(self) -> str:
        text = f"{self.median:.3f} ± {self.half_width:.3f}"
        return text if self.conclusive else f"{text} (inconclusive: the machine is too noisy)"


def ratio_of(pairs: Sequence[float], *, half_width_max: float = OVERHEAD_HALF_WIDTH) -> Ratio:
    """The ratio over pairs measured next to each other."""
    if len(pairs) < 2:
        return Ratio(pairs[0], float("inf"), tuple(pairs), half_width_max)
    quartiles = statistics.quantiles(pairs, n=4, method="inclusive")
    half_width = 1.57 * (quartiles[2] - quartiles[0]) / len(pairs) ** 0.5
    return Ratio(statistics.median(pairs), half_width, tuple(pairs), half_width_max)


def speedup_of(pairs: Sequence[float]) -> Ratio:
    """The same for "how many times": what is conclusive goes by the size of the figure."""
    return ratio_of(pairs, half_width_max=SPEEDUP_SHARE * abs(statistics.median(pairs)))


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which a share `q` of the values lies, interpolated between neighbours."""
    if not values:
        raise ValueError("no values, no quantile")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
