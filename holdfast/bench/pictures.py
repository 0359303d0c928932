"""Pictures of benchmarks, from their JSON: `holdfast bench NAME --json F --plot DIRECTORY`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.checkpoints import plots
from holdfast.bench.logs.plots import draw_logs
from holdfast.bench.meteor.plots import draw_meteor
from holdfast.bench.regions.plots import draw_regions
from holdfast.bench.subjects.cec_plot import draw_cec


def draw(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """The pictures that a benchmark has; returns the files."""
    if result["bench"] == "meteor":
        return draw_meteor(result, directory)
    if result["bench"] == "regions":
        return draw_regions(result, directory)
    if result["bench"] == "log":
        return draw_logs(result, directory)
    if result["bench"] == "cec":
        return draw_cec(result, directory)
    return plots.draw(result, directory)
