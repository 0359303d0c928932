"""A benchmark of two sides, holdfast and Structured Streaming with its default state store, over inputs of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.bench.measure import side_spark
from holdfast.bench.measure.alternate import Alternation, Round, Side, Stretch, pairs_of
from holdfast.bench.measure.inputs import Inputs
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio, quantile, speedup_of
from holdfast.bench.measure.report import by_side, durability, figure, latency_figures, show, side_figures
from holdfast.bench.measure.side_holdfast import PERIOD_S, CountingStore, run_topology
from holdfast.language.topology import Topology

OURS, THEIRS = "holdfast", "spark_default"

Build = Callable[[Path, Path], Topology]
"""(directory of inputs, directory for the output) → our side."""

Look = Callable[[Any, Path, int], Any]
"""(inputs, output, steps) → what was written, in a form that can be compared; raises if it is wrong."""

Query = Callable[[Place, Path, Path], Stretch]
"""(place, inputs, output) → what their side did."""


@dataclass(frozen=True)
class Shape:
    """How large a benchmark is. `rows`: of all streams together, per second of event time and step."""

    rows: int
    keys: int
    warm_up_steps: int
    steps_at_least: int


@dataclass(frozen=True)
class Duel:
    """A benchmark over inputs of one kind; `settings` are told with its figures."""

    name: str
    shape: Shape
    make_inputs: Callable[[Path, Shape], Inputs]
    ours: Build
    theirs: Query
    look: Look
    settings: Mapping[str, Any]

    def run(
        self, shape: Shape | None = None, *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False
    ) -> dict[str, Any]:
        """Warm up, alternate, compare; the result is plain data."""
        shape = shape or self.shape
        with bench_place(quiet) as place:
            inputs = self.make_inputs(place.root / "inputs", shape)
            sides = [
                Side(OURS, partial(run_ours, place, self.ours)),
                Side(THEIRS, partial(self.theirs, place)),
            ]
            alternation = Alternation(place, inputs, sides, partial(self.look, inputs))
            alternation.warm_up(shape.warm_up_steps)
            steps = alternation.steps_of(seconds, at_least=shape.steps_at_least)
            settings = {"rows_per_step": shape.rows, "keys": shape.keys, **self.settings}
            return _report(self.name, place, alternation.measure(pairs, steps), settings)


def run_ours(place: Place, build: Build, files: Path, out: Path) -> Stretch:
    with place.directory("store") as store:
        return run_topology(build(files, out), place.session, files, CountingStore(store))


def _report(name: str, place: Place, rounds: list[Round], configuration: dict[str, Any]) -> dict[str, Any]:
    ratios: dict[str, Ratio] = {
        "ratio_vs_spark_default": speedup_of(pairs_of(rounds, OURS, THEIRS, lambda s: s.rows_per_s)),
        "latency_ratio_p50": speedup_of(
            pairs_of(rounds, OURS, THEIRS, lambda s: quantile(s.latencies_s, 0.5))
        ),
    }
    show(place.console, name, ratios, rounds)
    result: dict[str, Any] = {"bench": name}
    for figure_name, ratio in ratios.items():
        result |= figure(figure_name, ratio)
    return {
        **result,
        **side_figures(rounds),
        "latency_ms": latency_figures(rounds),
        **durability(by_side(rounds)[OURS]),
        "outputs_equal": True,
        "configuration": place.configuration(
            **configuration,
            period_s=PERIOD_S,
            common=side_spark.COMMON,
            state_stores={THEIRS: side_spark.PROVIDERS[THEIRS]},
        ),
    }
