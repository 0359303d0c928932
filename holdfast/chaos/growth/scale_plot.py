"""A picture of how the protocol grows: messages and simulated time against the number of elements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.chaos.growth.scale import Grown
from holdfast.errors import ConfigError

COLOURS = {"drain": "#b0702c", "token": "#7d4fb0", "async": "#2c6fbb"}


def draw(found: Sequence[Grown], file: Path) -> None:
    """Four small pictures: an epoch and a recovery, in messages and in time."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("pictures need matplotlib.", cure="pip install 'holdfast[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), dpi=120, sharex=True)
    titles = {
        "epoch_messages": "messages of an epoch", "epoch_time": "time of an epoch, in hops",
        "recovery_messages": "messages of a recovery", "recovery_time": "time of a recovery, in hops",
    }  # fmt: skip
    for (field, title), place in zip(titles.items(), axes.flat, strict=True):
        for mode in dict.fromkeys(each.mode for each in found):
            _line(place, [each for each in found if each.mode == mode], field)
        place.set(title=title, xscale="log", yscale="log", xlabel="elements")
        place.spines[["top", "right"]].set_visible(False)
    axes.flat[0].legend(frameon=False)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    pyplot.close(figure)


def _line(axes: Any, found: Sequence[Grown], field: str) -> None:
    mode = found[0].mode
    sizes, values = [each.elements for each in found], [getattr(each, field) for each in found]
    axes.plot(sizes, values, "o-", color=COLOURS.get(mode, "black"), label=mode, markersize=4)
