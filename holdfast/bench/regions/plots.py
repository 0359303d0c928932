"""The picture of `bench regions`: normalised throughput of every application and chain (document 004, figure 7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.checkpoints.plots import MUST, OTHER, OURS, drawing


def draw_regions(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """One file."""
    pyplot = drawing()
    directory.mkdir(parents=True, exist_ok=True)
    found: Mapping[str, float] = result["normalized_throughput"]
    figure, axes = pyplot.subplots(figsize=(max(7.2, 0.55 * len(found)), 3.8), dpi=120)
    for place, (name, value) in enumerate(found.items()):
        chain = name.startswith("chain")
        axes.bar([place], [value], color=OTHER if chain else OURS, width=0.6)
        pairs = result[f"normalized_throughput.{name}_interval"]["pairs"]
        axes.plot([place] * len(pairs), pairs, "k.", markersize=3)
        axes.hlines(0.98 if chain else 0.95, place - 0.4, place + 0.4, color=MUST, linestyle="--")
    axes.set_xticks(range(len(found)), list(found), rotation=40, ha="right", fontsize=7)
    axes.set_ylim(min(0.8, *found.values()), max(1.05, *found.values()))
    axes.set_ylabel("rows/s in a region over without")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = directory / "regions.png"
    figure.savefig(path)
    pyplot.close(figure)
    return [path]
