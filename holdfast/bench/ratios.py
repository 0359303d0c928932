"""Ratios of alternating measurements: a median with its interval, and an honest word when it is too wide."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CONCLUSIVE_HALF_WIDTH = 0.02


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of pair ratios. `half_width` is the notch of a box plot, 1.57·IQR/√n: two medians whose notches do not
    overlap differ."""

    median: float
    half_width: float
    pairs: tuple[float, ...]

    @property
    def conclusive(self) -> bool:
        return self.half_width <= CONCLUSIVE_HALF_WIDTH

    def as_dict(self) -> dict[str, Any]:
        return {
            "median": round(self.median, 4),
            "low": round(self.median - self.half_width, 4),
            "high": round(self.median + self.half_width, 4),
            "conclusive": self.conclusive,
            "pairs": [round(pair, 4) for pair in self.pairs],
        }

    def __str__(self) -> str:
        text = f"{self.median:.3f} ± {self.half_width:.3f}"
        return text if self.conclusive else f"{text} (inconclusive: the machine is too noisy)"


def ratio_of(pairs: Sequence[float]) -> Ratio:
    """The ratio over pairs measured next to each other."""
    if len(pairs) < 2:
        return Ratio(pairs[0], float("inf"), tuple(pairs))
    quartiles = statistics.quantiles(pairs, n=4, method="inclusive")
    half_width = 1.57 * (quartiles[2] - quartiles[0]) / len(pairs) ** 0.5
    return Ratio(statistics.median(pairs), half_width, tuple(pairs))
