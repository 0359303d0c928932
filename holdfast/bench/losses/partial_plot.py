"""The picture of `holdfast bench partial`: which share of foreseen yields is off by how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIDES = {"with": ("#2c6fbb", "model has a checkpoint"), "without": ("#c0392b", "model has none")}
SMALLEST = 0.001
"""Below, a difference counts as none: the axis is logarithmic."""


def draw_errors(axes: Any, part: Mapping[str, Any]) -> None:
    """Axes of matplotlib are typed nowhere."""
    for side, (colour, label) in SIDES.items():
        errors = [max(error, SMALLEST) for error in part["errors"][side]]
        shares = [place / (len(errors) - 1) for place in range(len(errors))]
        axes.plot(errors, shares, color=colour, label=f"{label}: RMSE {part[f'rmse_{side}']:.2f}")
    axes.set_xscale("log")
    axes.set_xlabel("how far a foreseen yield is off, points of percent")
    axes.set_ylabel("share of units behind the kill")
    axes.set_ylim(0, 1.01)
    axes.legend(frameon=False)
    axes.set_title(f"A learning operator after {part['kills']} kills: RMSE ratio {part['rmse_ratio']:.2f}")
