"""`holdfast bench stateless`: what does a region cost a part that keeps no state, and what does holdfast cost at all?

Three sides, each over the same Parquet files, three stateless operators, Parquet out, one file per step:

    region   the graph in a consistent region with 2 s epochs: staging, fsync, manifest, commit, retention
    free     the same graph without a region
    plain    a loop of spark.read → transform → append

Sides alternate in one warmed session. Time runs from the first step until the last row is visible.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.bench.measure.alternate import Alternation, Round, Side, Stretch, pairs_of
from holdfast.bench.measure.inputs import Inputs, rows_in
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import ratio_of
from holdfast.bench.measure.report import by_side, durability, figure, show, side_figures
from holdfast.bench.measure.side_holdfast import PERIOD_S, CountingStore, run_topology
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

ROWS_PER_FILE = 500_000
DISTINCT_FILES = 4
WARM_UP_FILES = 12

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int32()),
        ("cents", pa.int64()),
        ("kind", pa.string()),
        ("rate", pa.float64()),
    ]
)
CONDITION = "cents > 2000"
ADDED = {"euros": "cents / 100.0", "band": "cast(cents / 5000 as int)"}
KEPT = ("id", "customer", "kind", "euros", "band", "rate * euros as interest")


def bench_stateless(*, pairs: int = 5, seconds: float = 10.0, quiet: bool = False) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    with bench_place(quiet) as place:
        inputs = Inputs(place.root / "inputs", ROWS_PER_FILE, DISTINCT_FILES, write_input)
        alternation = Alternation(place, inputs, _sides(place), lambda out, steps: fingerprint(out))
        alternation.warm_up(WARM_UP_FILES)
        steps = alternation.steps_of(seconds, at_least=WARM_UP_FILES)
        return _report(place, alternation.measure(pairs, steps))


def _report(place: Place, rounds: list[Round]) -> dict[str, Any]:
    ratios = {
        "normalized_throughput": ratio_of(pairs_of(rounds, "region", "free", lambda s: s.rows_per_s)),
        "versus_plain_spark": ratio_of(pairs_of(rounds, "region", "plain", lambda s: s.rows_per_s)),
    }
    show(place.console, "stateless: region / no region, region / plain Spark", ratios, rounds)
    result: dict[str, Any] = {"bench": "stateless"}
    for name, ratio in ratios.items():
        result |= figure(name, ratio)
    return {
        **result,
        "rows_per_stretch": rounds[0]["region"].rows,
        **side_figures(rounds),
        **durability(by_side(rounds)["region"]),
        "outputs_equal": True,
        "configuration": place.configuration(period_s=PERIOD_S, rows_per_step=ROWS_PER_FILE),
    }


# --- sides ----------------------------------------------------------------------------------------------------------


def _sides(place: Place) -> list[Side]:
    return [
        Side("region", partial(_run_in_region, place)),
        Side("free", partial(_run_free, place.session)),
        Side("plain", partial(_run_plain, place.session)),
    ]


def _run_in_region(place: Place, files: Path, out: Path) -> Stretch:
    with place.directory("store") as store:
        return run_topology(_topology(files, out, in_region=True), place.session, files, CountingStore(store))


def _run_free(session: SparkSession, files: Path, out: Path) -> Stretch:
    return run_topology(_topology(files, out, in_region=False), session, files, None)


def _topology(files: Path, out: Path, *, in_region: bool) -> Topology:
    topology = Topology("bench")
    stream = topology.source(
        Files(str(files), format="parquet", schema=SCHEMA, max_files_per_step=1), name="in"
    )
    if in_region:
        stream = stream.consistent(name="bench", period=PERIOD_S)
    result = stream.filter(CONDITION).with_columns(ADDED).select(*KEPT)
    result.sink(FileSink(str(out), format="parquet"), name="out")
    return topology


def _run_plain(session: SparkSession, files: Path, out: Path) -> Stretch:
    schema = from_arrow_schema(SCHEMA)
    names = sorted(files.iterdir())
    begun = time.monotonic()
    for file in names:
        _transform(session.read.schema(schema).parquet(str(file))).write.mode("append").parquet(str(out))
    return Stretch(time.monotonic() - begun, rows_in(files), len(names))


def _transform(frame: DataFrame) -> DataFrame:
    added = frame.filter(CONDITION).withColumns({name: F.expr(text) for name, text in ADDED.items()})
    return added.selectExpr(*KEPT)


# --- inputs and outputs ---------------------------------------------------------------------------------------------


def write_input(path: Path, number: int) -> None:
    """One file of orders."""
    random = np.random.default_rng(number)
    kinds = pa.array(["card", "transfer", "cash", "voucher"])
    table = pa.table(
        {
            "id": np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE),
            "customer": random.integers(0, 100_000, ROWS_PER_FILE, dtype=np.int32),
            "cents": random.integers(0, 20_000, ROWS_PER_FILE),
            "kind": kinds.take(pa.array(random.integers(0, 4, ROWS_PER_FILE))),
            "rate": random.random(ROWS_PER_FILE),
        },
        schema=SCHEMA,
    )
    pq.write_table(table, path)


def fingerprint(out: Path) -> dict[str, int]:
    """What the visible output holds: enough to notice a row too many, too few or different."""
    columns = ["id", "customer", "band"]
    table = pa.concat_tables([pq.read_table(file, columns=columns) for file in sorted(out.glob("*.parquet"))])
    ids = table.column("id").to_numpy()
    mixed = (ids * 31 + table.column("customer").to_numpy()) * 31 + table.column("band").to_numpy()
    return {
        "rows": table.num_rows,
        "sum": int(mixed.sum(dtype=np.int64)),
        "squares": int((mixed * mixed).sum(dtype=np.int64)),
    }
