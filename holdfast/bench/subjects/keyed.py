"""`holdfast bench keyed | keyed-big | keyed-1m`: a running aggregate per key against Structured Streaming.

Sum, count and max by key, one row per changed key and step; Parquet in (one file per step), Parquet out.

    holdfast        in a consistent region with 2 s epochs, fsync, retention and compaction on
    spark_default   Structured Streaming, default state store
    spark_rocksdb   Structured Streaming, RocksDB with changelog

Sides alternate in one warmed session; each side's output is merged by key and compared with what the input comes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.bench.measure import side_spark
from holdfast.bench.measure.alternate import Alternation, Round, Side, Stretch, pairs_of
from holdfast.bench.measure.inputs import KEYED_SCHEMA, KeyedInputs
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio, quantile, speedup_of
from holdfast.bench.measure.report import (
    by_side,
    durability,
    figure,
    latency_figures,
    milliseconds,
    show,
    side_figures,
)
from holdfast.bench.measure.side_holdfast import PERIOD_S
from holdfast.bench.subjects.changelog import COLUMNS, first_difference, merged
from holdfast.bench.subjects.duel import run_ours
from holdfast.errors import HoldfastError
from holdfast.language.operators import aggregates
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

OURS, DEFAULT, ROCKSDB = "holdfast", "spark_default", "spark_rocksdb"
SMALL_ROWS, SMALL_KEYS = 100_000, 10_000
STEPS_MIN = 5
IN_A_REGION: Mapping[str, object] = {"period": PERIOD_S}
"""As users would run it."""


@dataclass(frozen=True)
class Workload:
    """One size of the same benchmark."""

    name: str
    rows: int
    keys: int
    rocksdb: bool
    latency: bool
    rocksdb_rounds_max: int | None = None
    warm_up_steps: int = 20
    """Twice as many are taken: a fresh JVM needs 30 to 60."""
    distinct: int = 8


WORKLOADS = {
    work.name: work
    for work in (
        Workload("keyed", SMALL_ROWS, SMALL_KEYS, rocksdb=True, latency=True),
        Workload("keyed-big", 1_000_000, SMALL_KEYS, rocksdb=False, latency=False),
        # There a step of RocksDB takes 5 s and more: it has fewer rounds, of as many steps, since later steps meet more keys.
        Workload("keyed-1m", 1_000_000, 1_000_000, rocksdb=True, latency=True, rocksdb_rounds_max=3),
    )
}


def bench_keyed(
    work: Workload, *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    with bench_place(quiet) as place:
        inputs = KeyedInputs(place.root / "inputs", work.rows, work.keys, work.distinct)
        alternation = Alternation(place, inputs, _sides(place, work), partial(look, inputs))
        alternation.warm_up(work.warm_up_steps)
        steps = alternation.steps_of(seconds, at_least=STEPS_MIN)
        return _report(place, work, alternation.measure(pairs, steps))


def keyed_topology(files: Path, out: Path, region: Mapping[str, object] | None = IN_A_REGION) -> Topology:
    """The aggregate of the benchmark, in our words, in a region with these settings, or (None) in none."""
    topology = Topology("bench")
    source = Files(str(files), format="parquet", schema=KEYED_SCHEMA, max_files_per_step=1)
    rows = topology.source(source, name="in")
    if region is not None:
        rows = rows.consistent(name="bench", **region)  # type: ignore[arg-type]
    changes = rows.aggregate(
        "key",
        emit="changes",
        name="by_key",
        total=aggregates.sum("value"),
        n=aggregates.count(),
        top=aggregates.max("value"),
    )
    changes.sink(FileSink(str(out), format="parquet"), name="out")
    return topology


def look(inputs: KeyedInputs, out: Path, steps: int) -> dict[str, int]:
    """What a stretch wrote, merged by key; it must be what its input comes to."""
    tables = (pq.read_table(file, columns=list(COLUMNS)) for file in sorted(out.glob("*.parquet")))
    found = merged(tables, inputs.keys)
    wrong = first_difference(found, inputs.totals(steps))
    if wrong is not None:
        raise HoldfastError(f"a side wrote wrong rows: {wrong}.")
    return found.summary()


# --- sides ----------------------------------------------------------------------------------------------------------


def _sides(place: Place, work: Workload) -> list[Side]:
    sides = [Side(OURS, partial(run_ours, place, keyed_topology)), _spark_side(place, work, DEFAULT)]
    return [*sides, _spark_side(place, work, ROCKSDB)] if work.rocksdb else sides


def _spark_side(place: Place, work: Workload, name: str) -> Side:
    run = partial(_run_spark, place, name)
    if name != ROCKSDB or work.rocksdb_rounds_max is None:
        return Side(name, run)
    small = KeyedInputs(place.root / "small", SMALL_ROWS, SMALL_KEYS, work.distinct)
    return Side(name, run, work.rocksdb_rounds_max, warm_up=small)


def _run_spark(place: Place, name: str, files: Path, out: Path) -> Stretch:
    with place.directory("checkpoint") as checkpoint:
        return side_spark.run_query(place.session, name, files, out, checkpoint)


# --- figures --------------------------------------------------------------------------------------------------------


def ratios_of(work: Workload, rounds: list[Round]) -> dict[str, Ratio]:
    """The figures of a workload: our throughput over theirs, our latency over theirs."""
    theirs = [DEFAULT, *([ROCKSDB] if work.rocksdb else [])]
    ratios = {
        f"ratio_vs_{name}": speedup_of(pairs_of(rounds, OURS, name, lambda s: s.rows_per_s))
        for name in theirs
    }
    if work.latency:
        for name, suffix in zip(theirs, ("", "_vs_rocksdb"), strict=False):
            pairs = pairs_of(rounds, OURS, name, lambda s: quantile(s.latencies_s, 0.5))
            ratios[f"latency_ratio_p50{suffix}"] = speedup_of(pairs)
    return ratios


def _report(place: Place, work: Workload, rounds: list[Round]) -> dict[str, Any]:
    ratios = ratios_of(work, rounds)
    show(place.console, f"{work.name}: {work.rows:,} rows per step, {work.keys:,} keys", ratios, rounds)
    sides = by_side(rounds)
    result: dict[str, Any] = {"bench": work.name}
    for name, ratio in ratios.items():
        result |= figure(name, ratio)
    return {
        **result,
        **side_figures(rounds),
        "rounds": {name: len(done) for name, done in sides.items()},
        "latency_ms": latency_figures(rounds),
        "reported_step_ms": milliseconds([s for done in sides[OURS] for s in done.step_s]),
        **durability(sides[OURS]),
        "outputs_equal": True,
        "configuration": place.configuration(
            rows_per_step=work.rows,
            keys=work.keys,
            period_s=PERIOD_S,
            query=side_spark.QUERY,
            common=side_spark.COMMON,
            state_stores={name: side_spark.PROVIDERS[name] for name in sides if name != OURS},
            throughput="rows / (beginning of the first step or micro-batch → last row visible)",
            latency="holdfast: from the end of the step before to the end of the step; Spark: triggerExecution",
            latency_is_against=DEFAULT,
        ),
    }
