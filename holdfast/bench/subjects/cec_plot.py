"""The picture of `holdfast bench cec`: throughput with eventual checkpoints over that without any, by regime and pace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.checkpoints.plots import drawing

PREFIX = "normalized_throughput_"
COLOURS = {"fast": "#c0392b", "slow": "#2c6fbb", "mixed": "#27864a"}


def draw_cec(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """One PNG; returns the files."""
    pyplot = drawing()
    directory.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7.2, 3.6), dpi=120)
    names = [name for name in result if name.startswith(PREFIX) and not name.endswith("_interval")]
    sides = list(dict.fromkeys(name.rpartition("_")[2] for name in names))
    for regime, colour in COLOURS.items():
        values = [result[f"{PREFIX}{regime}_{side}"] for side in sides]
        axes.plot(range(len(sides)), values, "o-", color=colour, label=regime)
        for place, side in enumerate(sides):
            pairs = result[f"{PREFIX}{regime}_{side}_interval"]["pairs"]
            axes.plot([place] * len(pairs), pairs, ".", color=colour, markersize=3, alpha=0.5)
    axes.set_xticks(
        range(len(sides)), ["open records only" if s == "open" else f"checks, {s}" for s in sides]
    )
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_ylabel("rows/s over rows/s without checkpoints")
    axes.legend(frameon=False)
    axes.set_title("What eventual checkpoints cost")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    file = directory / "cec.png"
    figure.savefig(file)
    pyplot.close(figure)
    return [file]
