"""A picture of the size of a region's state over time, from events: curve, turning points, thresholds, epochs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.protocol.size_curves import Point, average, total
from holdfast.runtime.telling.events import EpochDecided, RunEvent, RunStarted, StateSizes, TimingProfiled
from holdfast.runtime.telling.stored_events import OtherEvent

LINE, EPOCH, THRESHOLD, AVERAGE = "#2c6fbb", "#c0392b", "#27ae60", "#b0b7c3"
AT_MINIMA = ("foreseen increase", "last minimum")
"""Reasons of epochs that did not come because their period ended."""


@dataclass
class Life:
    """What one run told about a region."""

    curves: dict[str, list[Point]] = field(default_factory=dict)
    """By element: turning points."""
    epochs: list[EpochDecided] = field(default_factory=list)
    profiles: list[TimingProfiled] = field(default_factory=list)

    @property
    def total(self) -> list[Point]:
        return total(self.curves.values())


def lives_of(events: Iterable[RunEvent | OtherEvent], region: str) -> list[Life]:
    """Curves, epochs and thresholds of a region, run by run: between two runs nobody looked."""
    lives = [Life()]
    for event in events:
        match event:
            case RunStarted():
                lives.append(Life())
            case StateSizes(region=name, curves=curves) if name == region:
                for element, points in curves.items():
                    lives[-1].curves.setdefault(element, []).extend((at, size) for at, size in points)
            case EpochDecided(region=name) if name == region:
                lives[-1].epochs.append(event)
            case TimingProfiled(region=name) if name == region:
                lives[-1].profiles.append(event)
    for life in lives:
        life.curves = {element: sorted(set(points)) for element, points in life.curves.items()}
    return [life for life in lives if life.curves]


def draw(lives: list[Life], region: str, out: Path) -> None:
    """One picture: the curve of all elements, its turning points, thresholds, epochs."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("pictures need matplotlib.", cure="pip install 'holdfast[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9.0, 4.0), dpi=120)
    begin = min(at for life in lives for at, _ in life.total)
    most = max(size for life in lives for _, size in life.total)
    unit, name = (1e6, "MB") if most >= 1e6 else (1e3, "kB") if most >= 1e3 else (1.0, "bytes")
    for life in lives:
        _draw_life(axes, life, begin, unit)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("s")
    axes.set_ylabel(name)
    figure.suptitle(f"State of region {region}, and where its epochs came", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(
        handles.values(),
        handles.keys(),
        frameon=False,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        fontsize=8,
    )
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(out)
    except ValueError as error:
        raise ConfigError(f"{out} cannot be drawn: {error}.", cure="Use --out FILE.png.") from error
    finally:
        pyplot.close(figure)


def _draw_life(axes: Any, life: Life, begin: float, unit: float) -> None:
    """Axes of matplotlib are typed nowhere."""
    curve = life.total
    times, sizes = [at - begin for at, _ in curve], [size / unit for _, size in curve]
    axes.plot(times, sizes, color=LINE, linewidth=1.2, label="state")
    axes.plot(times, sizes, ".", color=LINE, markersize=3, label="turning points")
    axes.hlines(average(curve) / unit, times[0], times[-1], color=AVERAGE, linestyle=":", label="average")
    ends = [*(profile.at for profile in life.profiles[1:]), begin + times[-1]]
    for profile, end in zip(life.profiles, ends, strict=False):
        if profile.dynamic:
            span = (profile.at - begin, end - begin)
            axes.hlines(profile.s_max / unit, *span, color=THRESHOLD, linestyle="--", label="s_max")
    for chosen, label, filled in (
        (True, "epoch at a minimum", EPOCH),
        (False, "epoch at a period's end", "none"),
    ):
        some = [epoch for epoch in life.epochs if (epoch.reason in AT_MINIMA) == chosen]
        where = [[epoch.at - begin for epoch in some], [epoch.state_bytes / unit for epoch in some]]
        if some:
            axes.plot(*where, "o", color=EPOCH, markerfacecolor=filled, markersize=6, label=label)
