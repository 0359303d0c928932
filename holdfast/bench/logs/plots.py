"""The pictures of `bench log`: ratios, and what writer and reader of a large log hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.checkpoints.plots import MUST, OTHER, OURS, drawing

WANTED = {
    **{f"append_ratio_{width}": 0.6 for width in (256, 1024, 4096)},
    "preserve_ratio": 0.8,
    "query_over_all": 0.1,
    "query_over_parquet": 1.1,
    "stream_ratio": 0.5,
    "stream_rows_ratio": 0.5,
}
"""What must be reached; for questions at most."""


def draw_logs(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """One file each, of what was measured."""
    directory.mkdir(parents=True, exist_ok=True)
    found = [_ratios(result, directory / "log-ratios.png")] if any(name in result for name in WANTED) else []
    if "large_writer_peak_mb" in result:
        found.append(_memory(result, directory / "log-memory.png"))
    return found


def _ratios(result: Mapping[str, Any], path: Path) -> Path:
    pyplot = drawing()
    names = [name for name in WANTED if name in result]
    figure, axes = pyplot.subplots(figsize=(max(5.0, 1.1 * len(names)), 3.8), dpi=120)
    for place, name in enumerate(names):
        axes.bar([place], [result[name]], color=OURS, width=0.6)
        pairs = result[f"{name}_interval"]["pairs"]
        axes.plot([place] * len(pairs), pairs, "k.", markersize=3)
        axes.hlines(WANTED[name], place - 0.4, place + 0.4, color=MUST, linestyle="--")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
    axes.set_ylabel("ratio; dashed: must")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path


def _memory(result: Mapping[str, Any], path: Path) -> Path:
    pyplot = drawing()
    figure, axes = pyplot.subplots(figsize=(5.0, 3.4), dpi=120)
    for who, colour in (("writer", OURS), ("reader", OTHER)):
        peaks = result[f"large_{who}_peak_mb"]
        parts = [result["large_log_bytes"] / 1e9 * (n + 1) / len(peaks) for n in range(len(peaks))]
        axes.plot(parts, peaks, marker="o", color=colour, label=who)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("GB of the log")
    axes.set_ylabel("most memory so far, MB")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
