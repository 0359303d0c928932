"""`holdfast bench log`: all of it, or the parts that `--only` names; `--scale` makes the logs smaller or larger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from holdfast.bench.logs.append import bench_append
from holdfast.bench.logs.large import measure_large
from holdfast.bench.logs.preserve import measure_preserve
from holdfast.bench.logs.query import measure_query
from holdfast.bench.logs.stream import measure_stream
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio
from holdfast.bench.measure.report import figure
from holdfast.errors import ConfigError

Measure = Callable[[Place, float, int, float], tuple[dict[str, Ratio], dict[str, Any]]]

ON_SPARK: dict[str, Measure] = {
    "preserve": measure_preserve,
    "query": measure_query,
    "stream": measure_stream,
}
PARTS = ("append", *ON_SPARK, "large")


def bench_log(
    *, pairs: int, seconds: float, quiet: bool, only: Sequence[str] | None = None, scale: float = 1.0
) -> dict[str, Any]:
    """The result is plain data."""
    chosen = list(PARTS if only is None else only)
    unknown = next((name for name in chosen if name not in PARTS), None)
    if unknown is not None:
        raise ConfigError(f"bench log has no part {unknown!r}.", cure=f"There are: {', '.join(PARTS)}.")
    result: dict[str, Any] = {"bench": "log", "parts": chosen, "scale": scale}
    ratios: dict[str, Ratio] = {}
    if "append" in chosen:
        result |= bench_append(pairs=pairs, seconds=seconds, quiet=quiet)
    if any(name in ON_SPARK for name in chosen):
        with bench_place(quiet) as place:
            for name in (name for name in ON_SPARK if name in chosen):
                place.console.print(f"{name}:")
                found, report = ON_SPARK[name](place, scale, pairs, seconds)
                ratios |= found
                result |= report
                for key, ratio in found.items():
                    result |= figure(key, ratio)
            result["spark_configuration"] = place.configuration()
    if "large" in chosen:
        result |= measure_large(scale)
    _show(Console(stderr=True, quiet=quiet), ratios, result)
    return result


def _show(console: Console, ratios: dict[str, Ratio], result: dict[str, Any]) -> None:
    if ratios:
        table = Table("figure", "median", title="logs", title_justify="left")
        for name, ratio in ratios.items():
            table.add_row(name, str(ratio))
        console.print(table)
    for name, value in result.items():
        if name.startswith("large_"):
            console.print(f"{name}: {value}")
