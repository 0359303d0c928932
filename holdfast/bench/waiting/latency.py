"""`holdfast bench latency`: how long a row takes from its file until it is visible, exactly-once, beside Structured Streaming.

Small files come at a steady pace; an aggregate by key changes with each; the sink shows the changes. Measured is the time from the moment
a file has its name until the output has all its rows, by a process that knows no side.

    holdfast        in a consistent region with 0.2 s epochs
    spark_default   Structured Streaming, default state store, a micro-batch after the other, `foreachBatch` appends files

Sides alternate in one warmed session. The beginning of each stretch, while the run starts, does not count. Each side's output is merged by
key and compared with what the input comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.table import Table

from holdfast.bench.measure import side_spark
from holdfast.bench.measure.alternate import check_equal
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio, quantile, speedup_of
from holdfast.bench.measure.report import figure, milliseconds
from holdfast.bench.subjects.changelog import COLUMNS, first_difference, merged, totals_of
from holdfast.bench.waiting.budget import EPOCH, STEP, Budget
from holdfast.bench.waiting.observer import Pace
from holdfast.bench.waiting.sides import OURS, PERIOD_S, THEIRS, Waited, run_ours, run_theirs
from holdfast.errors import HoldfastError

KEYS = 100
PER_S = 10.0
UNCOUNTED_S = 2.0
"""Of each stretch: the first rows wait for the run to start."""
WARM_UP_S = 15.0
"""Of every side and input, before the first stretch: as many steps as a fresh JVM needs."""


@dataclass(frozen=True)
class Kind:
    """One kind of input."""

    name: str
    format: str
    rows: int

    def pace(self, seconds: float) -> Pace:
        files = max(2, round(PER_S * seconds))
        return Pace(self.format, files, self.rows, PER_S, KEYS)


KINDS = (Kind("json", "json", 1), Kind("parquet", "parquet", 1), Kind("json-1k", "json", 100))
"""One row a file, and a thousand rows a second."""

Round = Mapping[str, Waited]


def bench_latency(
    *,
    pairs: int = 5,
    seconds: float = 10.0,
    quiet: bool = False,
    only: Sequence[str] | None = None,
    warm_up_s: float = WARM_UP_S,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    chosen = [kind for kind in KINDS if only is None or kind.name in only]
    with bench_place(quiet) as place:
        found = {kind.name: _kind(place, kind, pairs, seconds, warm_up_s) for kind in chosen}
        first = next(iter(found.values()))
        return {
            "bench": "latency",
            # Of the first kind, under the names by which the figures are known.
            **{name: first[name] for name in ("visible_p50_ratio", "visible_p99_ratio", "step_ms_p50")},
            "kinds": found,
            "outputs_equal": True,
            "configuration": place.configuration(
                files_per_s=PER_S,
                keys=KEYS,
                period_s=PERIOD_S,
                warm_up_s=warm_up_s,
                uncounted_s=UNCOUNTED_S,
                common=side_spark.COMMON,
                state_stores={THEIRS: side_spark.PROVIDERS[THEIRS]},
                latency="from the file's name until the output has all its rows",
            ),
        }


def _kind(place: Place, kind: Kind, pairs: int, seconds: float, warm_up_s: float) -> dict[str, Any]:
    place.console.print(f"warming up {kind.name}")
    _round(place, kind.pace(warm_up_s), Budget(), backwards=False)
    budget, rounds = Budget(), []
    for number in range(pairs):
        rounds.append(_round(place, kind.pace(seconds), budget, backwards=bool(number % 2)))
        p50 = {name: 1000 * quantile(counted(done), 0.5) for name, done in rounds[-1].items()}
        shown = ", ".join(f"{name} {ms:.0f} ms" for name, ms in p50.items())
        place.console.print(f"{kind.name}, round {number + 1} of {pairs}: {shown}")
    return _report(place, kind, rounds, budget)


def _round(place: Place, pace: Pace, budget: Budget, backwards: bool) -> dict[str, Waited]:
    """Both sides over the same rows, one after the other; what they wrote must be the same."""
    sides: dict[str, Callable[[Place, Pace, Path, Path], Waited]] = {
        OURS: partial(run_ours, budget=budget),
        THEIRS: run_theirs,
    }
    done: dict[str, Waited] = {}
    seen: dict[str, Any] = {}
    for name in reversed(sides) if backwards else sides:
        with place.directory("in") as files, place.directory("out") as out:
            place.settle()
            done[name] = sides[name](place, pace, files, out)
            seen[name] = look(pace, out)
    check_equal(seen)
    return {name: done[name] for name in sides}


def look(pace: Pace, out: Path) -> dict[str, int]:
    """What a stretch wrote, merged by key; it must be what its input comes to."""
    tables = (pq.read_table(file, columns=list(COLUMNS)) for file in sorted(out.glob("*.parquet")))
    found = merged(tables, pace.keys)
    wanted = totals_of(((pace.keys_of(f), pace.values_of(f)) for f in range(pace.files)), pace.keys)
    wrong = first_difference(found, wanted)
    if wrong is not None:
        raise HoldfastError(f"a side wrote wrong rows: {wrong}.")
    return found.summary()


def counted(done: Waited) -> tuple[float, ...]:
    """The waiting times that count: all behind the beginning, or the later half of a short stretch."""
    latencies = done.seen.latencies_s
    return latencies[min(round(UNCOUNTED_S * PER_S), len(latencies) // 2) :]


def _ratio(rounds: Sequence[Round], q: float) -> Ratio:
    return speedup_of([quantile(counted(r[OURS]), q) / quantile(counted(r[THEIRS]), q) for r in rounds])


def _report(place: Place, kind: Kind, rounds: Sequence[Round], budget: Budget) -> dict[str, Any]:
    ratios = {"visible_p50_ratio": _ratio(rounds, 0.5), "visible_p99_ratio": _ratio(rounds, 0.99)}
    steps = [seconds for done in rounds for seconds in done[OURS].steps_s]
    batches = [seconds for done in rounds for seconds in done[THEIRS].steps_s]
    epochs = sum(done[OURS].epochs for done in rounds)
    if not epochs:
        raise HoldfastError("the region published no epoch: the figures would mean nothing.")
    report: dict[str, Any] = {}
    for name, ratio in ratios.items():
        report |= figure(name, ratio)
    report |= {
        "step_ms_p50": round(1000 * quantile(steps, 0.5), 1),
        "visible_ms": {
            name: milliseconds([s for done in rounds for s in counted(done[name])]) for name in (OURS, THEIRS)
        },
        "step_ms": {OURS: milliseconds(steps), THEIRS: milliseconds(batches)},
        "steps": {OURS: len(steps), THEIRS: len(batches)},
        "epochs": epochs,
        "budget_step_ms": budget.of(STEP),
        "budget_epoch_ms": budget.of(EPOCH),
    }
    _show(place, kind, ratios, report)
    return report


def _show(place: Place, kind: Kind, ratios: Mapping[str, Ratio], report: Mapping[str, Any]) -> None:
    table = Table("side", "p50", "p90", "p99", "steps", "step p50", title=kind.name, title_justify="left")
    for name in (OURS, THEIRS):
        waited = [f"{report['visible_ms'][name][q]:.0f} ms" for q in ("p50", "p90", "p99")]
        table.add_row(name, *waited, str(report["steps"][name]), f"{report['step_ms'][name]['p50']:.0f} ms")
    place.console.print(table)
    for name, ratio in ratios.items():
        place.console.print(f"{name}: {ratio}")
    place.console.print(f"a step: {report['budget_step_ms']}; an epoch: {report['budget_epoch_ms']}")
