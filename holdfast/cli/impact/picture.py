"""The picture of `holdfast impact`: the effect of each operator's loss, as the program is and the other way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError

WITHOUT, WITH = "#c0392b", "#2c6fbb"
FORMATS = (".png", ".svg", ".pdf")


def check_target(out: Path) -> None:
    """Before anything runs: can it be drawn there?"""
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(f"{out} is no picture.", cure=f"Use a name that ends in {', '.join(FORMATS)}.")


def draw(result: Mapping[str, Any], out: Path) -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("pictures need matplotlib.", cure="pip install 'holdfast[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    operators = result["operators"]
    figure, axes = pyplot.subplots(figsize=(8.0, 1.6 + 0.5 * len(operators)), dpi=120)
    for place, each in enumerate(operators):
        _bars(axes, place, each)
    axes.set_yticks(range(len(operators)), [_label(each) for each in operators])
    axes.invert_yaxis()
    axes.set_xlabel("effect on the worst sink, % (rows missing or too many, values off)")
    axes.set_title(f"{result['topology']}: what the loss of each operator does to the output", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), frameon=False, fontsize=8)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    pyplot.close(figure)


def _bars(axes: Any, place: int, each: Mapping[str, Any]) -> None:
    """Axes of matplotlib are typed nowhere."""
    has_one, other = each["checkpoint_every_s"] is not None, each["effect_the_other_way"]
    height = 0.7 if other is None else 0.35
    sides = [(each["effect"], has_one)] + ([] if other is None else [(other, not has_one)])
    for number, (effect, kept) in enumerate(sides):
        colour, label = (WITH, "with a checkpoint of its own") if kept else (WITHOUT, "without")
        axes.barh(
            place - 0.175 * (len(sides) - 1) + 0.35 * number, 100 * effect, height, color=colour, label=label
        )


def _label(each: Mapping[str, Any]) -> str:
    size = each["state_bytes"]
    return str(each["operator"]) + ("" if size is None else f"\n{size:,} bytes")
