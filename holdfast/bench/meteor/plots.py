"""Pictures of `bench meteor`: throughput and latency by number of epochs (figures 12 and 13 of document 002), bytes of epochs, state curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from holdfast.bench.checkpoints.plots import drawing

COLOURS = {
    "independent": "#b0b7c3",
    "token": "#e0a030",
    "async": "#2c6fbb",
    "aware": "#27ae60",
    "oracle": "#8e44ad",
}


def draw_meteor(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """What variants cost, if that was measured, and what the state does."""
    pyplot = drawing()
    directory.mkdir(parents=True, exist_ok=True)
    apps: Mapping[str, Any] = result["apps"]
    files = []
    if all(app["by_epochs"] for app in apps.values()):
        figure, grid = pyplot.subplots(2, len(apps), figsize=(3.6 * len(apps), 5.4), dpi=120, squeeze=False)
        for column, (name, app) in enumerate(apps.items()):
            for row, what in enumerate(("throughput", "latency")):
                _lines(grid[row][column], app["by_epochs"], what)
                grid[row][column].set_title(f"{name}: {what}", fontsize=9)
        grid[0][0].legend(frameon=False, fontsize=7)
        files.append(_saved(pyplot, figure, directory / "meteor-windows.png"))
    figure, grid = pyplot.subplots(2, len(apps), figsize=(3.6 * len(apps), 5.4), dpi=120, squeeze=False)
    for column, (name, app) in enumerate(apps.items()):
        _curve(grid[0][column], app["state_curve"])
        grid[0][column].set_title(f"{name}: state, MB", fontsize=9)
        _bars(grid[1][column], app["epoch_bytes"])
        grid[1][column].set_title(f"{name}: MB per epoch", fontsize=9)
    files.append(_saved(pyplot, figure, directory / "meteor-state.png"))
    return files


def _lines(axes: Any, by_epochs: Mapping[str, Any], what: str) -> None:
    """Relative to `independent` without epochs."""
    counts = sorted(by_epochs, key=int)
    for variant in by_epochs[counts[-1]]:
        known = [count for count in counts if variant in by_epochs[count]]
        values = [by_epochs[count][variant][what] for count in known]
        axes.plot([int(count) for count in known], values, "o-", markersize=3, color=COLOURS[variant], label=variant)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epochs per window", fontsize=8)


def _curve(axes: Any, points: list[list[int]]) -> None:
    sizes = [size / 1e6 for _, size in points]
    axes.plot([rows for rows, _ in points], sizes, color=COLOURS["async"], linewidth=0.9)
    axes.axhline(fmean(sizes), color="#c0392b", linestyle=":", linewidth=0.9)
    axes.set_xlabel("rows", fontsize=8)


def _bars(axes: Any, bytes_of: Mapping[str, list[list[int]]]) -> None:
    known = {name: [size / 1e6 for sizes in rounds for size in sizes] for name, rounds in bytes_of.items()}
    names = [name for name in ("token", "async", "aware", "oracle") if known.get(name)]
    for place, name in enumerate(names):
        axes.bar([place], [fmean(known[name])], color=COLOURS[name], width=0.6)
        axes.plot([place] * len(known[name]), known[name], "k.", markersize=2)
    axes.set_xticks(range(len(names)), names, fontsize=8)


def _saved(pyplot: Any, figure: Any, path: Path) -> Path:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
