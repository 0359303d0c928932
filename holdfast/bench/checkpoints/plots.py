"""Pictures of the checkpoint benchmarks, from their JSON: `holdfast bench checkpoint --json F --plot DIRECTORY`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.losses.partial_plot import draw_errors
from holdfast.errors import ConfigError

MUST, AIM = "#c0392b", "#27ae60"
OURS, OTHER = "#2c6fbb", "#b0b7c3"

Axes = Any
"""Of matplotlib, which is imported only when something is drawn."""


def draw(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """A PNG for every part of a result that has one; returns the files."""
    pyplot = drawing()
    parts = result.get("parts") or {result["bench"]: result}
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name, part in parts.items():
        if name not in PICTURES:
            continue
        figure, axes = pyplot.subplots(figsize=(7.2, 3.6), dpi=120)
        PICTURES[name](axes, part)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        files.append(directory / f"{name}.png")
        figure.savefig(files[-1])
        pyplot.close(figure)
    return files


def drawing() -> Any:
    """matplotlib's pyplot without a window, or a word about how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("pictures need matplotlib.", cure="pip install 'holdfast[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _throughput(axes: Axes, part: Mapping[str, Any]) -> None:
    prefix = "normalized_throughput_"
    names = [n for n in part if n.startswith(prefix) and not n.endswith("_interval")]
    _bars(axes, [n.removeprefix(prefix).replace("mb", " MB") for n in names], [part[n] for n in names])
    intervals = [part[f"{n}_interval"]["pairs"] for n in names]
    for place, pairs in enumerate(intervals):
        axes.plot([place] * len(pairs), pairs, "o", color="black", markersize=3)
    _lines(axes, 0.95, 0.98)
    axes.set_ylim(min(0.85, *(min(pairs) for pairs in intervals)), 1.05)
    axes.set_ylabel("rows/s with epochs over without")
    axes.set_title("What 8 s epochs of a state cost, 10 % of keys changed in each")


def _pause(axes: Axes, part: Mapping[str, Any]) -> None:
    _bars(axes, list(part["pause_ms"]), list(part["pause_ms"].values()))
    _lines(axes, 20, 5)
    axes.set_ylabel("ms")
    axes.set_title(f"How long an epoch holds an element up ({part['epochs']} epochs, 512 MB)")


def _bytes(axes: Axes, part: Mapping[str, Any]) -> None:
    names = ["delta_bytes_over_changed", "total_bytes_over_changed"]
    _bars(axes, ["deltas", "everything"], [part[name] for name in names])
    for place, (must, aim) in enumerate(((1.2, 1.05), (2.5, 2.0))):
        axes.hlines(must, place - 0.4, place + 0.4, color=MUST, linestyle="--")
        axes.hlines(aim, place - 0.4, place + 0.4, color=AIM, linestyle="--")
    axes.set_ylabel("bytes stored over bytes changed")
    axes.set_title(f"1 % of the keys changed per epoch, {part['epochs']} epochs, {part['bases']} bases")


def _join(axes: Axes, part: Mapping[str, Any]) -> None:
    found = part["join_normalized_intervals"]
    medians = [one["median"] for one in found.values()]
    _bars(axes, [name.replace("per_group_", "").replace(".", "\n") for name in found], medians)
    wide = [one["high"] - one["median"] for one in found.values()]
    axes.errorbar(range(len(medians)), medians, yerr=wide, fmt="none", ecolor="black", elinewidth=0.8)
    axes.tick_params(axis="x", labelsize=6)
    _lines(axes, 0.97, 0.99)
    axes.set_ylim(min(0.85, *medians), max(1.05, *medians))
    axes.set_ylabel("rows/s with epochs over without")
    axes.set_title(f"Window joins: window, group, period (deadlines met: {part['deadline_met']:.0%})")


def _restore(axes: Axes, part: Mapping[str, Any]) -> None:
    for place, (side, seconds) in enumerate(part["first_s"].items()):
        colour = OURS if side == "holdfast" else OTHER
        axes.bar([place], [sorted(seconds)[len(seconds) // 2]], color=colour, width=0.6)
        axes.plot([place] * len(seconds), seconds, "o", color="black", markersize=3)
    axes.set_xticks(range(len(part["first_s"])), list(part["first_s"]))
    axes.set_ylabel("s")
    axes.set_title(f"Killed with {part['state_mb']} MB of state: session ready → first rows")


def _bound(axes: Axes, part: Mapping[str, Any]) -> None:
    for bound, seconds in part["restore_s"].items():
        predicted = part["predicted_s"][bound]
        axes.plot(predicted, seconds, "o", label=f"within {bound} s")
        axes.axhline(float(bound), color=MUST, linestyle=":", linewidth=0.8)
    axes.set_xlabel("predicted, s")
    axes.set_ylabel("measured, s")
    axes.legend(frameon=False)
    axes.set_title(f"{part['restores']} restores after kills")


def _bars(axes: Axes, names: list[str], values: list[float]) -> None:
    axes.bar(range(len(names)), values, color=OURS, width=0.6)
    axes.set_xticks(range(len(names)), names)


def _lines(axes: Axes, must: float, aim: float) -> None:
    axes.axhline(must, color=MUST, linestyle="--", linewidth=0.9)
    axes.axhline(aim, color=AIM, linestyle="--", linewidth=0.9)


PICTURES: Mapping[str, Callable[[Axes, Mapping[str, Any]], None]] = {
    "checkpoint-throughput": _throughput,
    "checkpoint-pause": _pause,
    "checkpoint-bytes": _bytes,
    "checkpoint-join": _join,
    "checkpoint-restore": _restore,
    "checkpoint-bound": _bound,
    "partial": draw_errors,
}
