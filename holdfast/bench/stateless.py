"""`holdfast bench stateless`: what does a region cost a part that keeps no state, and what does holdfast cost at all?

Three sides, each over the same Parquet files, three stateless operators, Parquet out, one file per step:

    region   the graph in a consistent region with 2 s epochs: staging, fsync, manifest, commit, retention
    free     the same graph without a region
    plain    a loop of spark.read → transform → append

Sides alternate in one warmed session. Time runs from the first step until the last row is visible.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from holdfast.bench.ratios import ratio_of
from holdfast.errors import HoldfastError
from holdfast.language.topology import Topology
from holdfast.runtime.job import Job
from holdfast.runtime.spark.session import make_session
from holdfast.sinks import FileSink
from holdfast.sources import Files

ROWS_PER_FILE = 500_000
DISTINCT_FILES = 4
PERIOD_S = 2.0
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
    console = Console(stderr=True, quiet=quiet)
    root = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    session = make_session("holdfast bench", settings={"spark.driver.memory": "4g"})
    try:
        return _measured(session, root, pairs, seconds, console)
    finally:
        session.stop()
        shutil.rmtree(root, ignore_errors=True)


def _measured(
    session: SparkSession, root: Path, pairs: int, seconds: float, console: Console
) -> dict[str, Any]:
    inputs = Inputs(root)
    sides: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
        "region": lambda files, out: _run_holdfast(session, files, out, root, in_region=True),
        "free": lambda files, out: _run_holdfast(session, files, out, root, in_region=False),
        "plain": lambda files, out: _run_plain(session, files, out),
    }
    console.print("warming up all sides")
    for side in sides.values():
        last = _stretch(side, inputs.directory(WARM_UP_FILES), root)
    for side in sides.values():
        last = _stretch(side, inputs.directory(WARM_UP_FILES), root)
    count = max(WARM_UP_FILES, int(seconds / (last["seconds"] / WARM_UP_FILES)) + 1)
    files = inputs.directory(count)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number in range(pairs):
        # Every other round backwards: what drifts over time hits all sides alike.
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            results[name].append(_stretch(sides[name], files, root))
        _check_equal({name: results[name][-1] for name in sides})
        shown = ", ".join(
            f"{name} {count * ROWS_PER_FILE / results[name][-1]['seconds']:,.0f} rows/s" for name in sides
        )
        console.print(f"round {number + 1} of {pairs}: {shown}")
    return _report(results, count, session, console)


def _stretch(side: Callable[[Path, Path], dict[str, Any]], files: Path, root: Path) -> dict[str, Any]:
    out = Path(tempfile.mkdtemp(prefix="out-", dir=root))
    try:
        result = side(files, out)
        result["check"] = _fingerprint(out)
        return result
    finally:
        shutil.rmtree(out)


def _report(
    results: dict[str, list[dict[str, Any]]], files: int, session: SparkSession, console: Console
) -> dict[str, Any]:
    times = {name: [r["seconds"] for r in rounds] for name, rounds in results.items()}
    normalized = ratio_of(
        [free / region for free, region in zip(times["free"], times["region"], strict=True)]
    )
    versus = ratio_of([plain / region for plain, region in zip(times["plain"], times["region"], strict=True)])
    epochs = sum(r["epochs"] for r in results["region"])
    written = sum(r["bytes_written"] for r in results["region"])
    if not epochs or not written:
        raise HoldfastError("the region published no epoch: the figures would mean nothing.")
    console.print(f"normalized throughput (region / no region): {normalized}")
    console.print(f"versus plain Spark    (region / plain):     {versus}")
    return {
        "bench": "stateless",
        "normalized_throughput": round(normalized.median, 4),
        "normalized_throughput_interval": normalized.as_dict(),
        "versus_plain_spark": round(versus.median, 4),
        "versus_plain_spark_interval": versus.as_dict(),
        "rows_per_stretch": files * ROWS_PER_FILE,
        "rows_per_s": {n: round(len(t) * files * ROWS_PER_FILE / sum(t)) for n, t in times.items()},
        "seconds": {n: [round(s, 2) for s in t] for n, t in times.items()},
        "epochs_published": epochs,
        "store_bytes_written": written,
        "outputs_equal": True,
        "configuration": {
            "master": session.sparkContext.master,
            "cores": os.cpu_count(),
            "spark": session.version,
            "period_s": PERIOD_S,
            "rows_per_step": ROWS_PER_FILE,
        },
    }


# --- sides ----------------------------------------------------------------------------------------------------------


def _run_holdfast(
    session: SparkSession, files: Path, out: Path, root: Path, *, in_region: bool
) -> dict[str, Any]:
    topology = Topology("bench")
    stream = topology.source(
        Files(str(files), format="parquet", schema=SCHEMA, max_files_per_step=1), name="in"
    )
    if in_region:
        stream = stream.consistent(name="bench", period=PERIOD_S)
    result = stream.filter(CONDITION).with_columns(ADDED).select(*KEPT)
    result.sink(FileSink(str(out), format="parquet"), name="out")
    store = tempfile.mkdtemp(prefix="store-", dir=root) if in_region else None
    job: Job = topology.submit(spark=session, store=store, until="available")
    begun = time.monotonic()
    job.await_termination()
    seconds = time.monotonic() - begun
    regions = job.status()["regions"].values()
    return {
        "seconds": seconds,
        "epochs": sum(region["epochs_published"] for region in regions),
        "bytes_written": sum(region["bytes_written"] for region in regions),
    }


def _run_plain(session: SparkSession, files: Path, out: Path) -> dict[str, Any]:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(SCHEMA)
    begun = time.monotonic()
    for file in sorted(files.iterdir()):
        _transform(session.read.schema(schema).parquet(str(file))).write.mode("append").parquet(str(out))
    return {"seconds": time.monotonic() - begun}


def _transform(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    added = frame.filter(CONDITION).withColumns({name: F.expr(text) for name, text in ADDED.items()})
    return added.selectExpr(*KEPT)


# --- inputs and outputs ---------------------------------------------------------------------------------------------


class Inputs:
    """A few distinct files, linked under as many names as a stretch needs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._distinct = [_write_input(root / f"distinct-{n}.parquet", n) for n in range(DISTINCT_FILES)]

    def directory(self, count: int) -> Path:
        path = self._root / f"in-{count}"
        if not path.exists():
            path.mkdir()
            for number in range(count):
                os.link(self._distinct[number % DISTINCT_FILES], path / f"part-{number:05d}.parquet")
        return path


def _write_input(path: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    kinds = pa.array(["card", "transfer", "cash", "voucher"])
    table = pa.table(
        {
            "id": np.arange(seed * ROWS_PER_FILE, (seed + 1) * ROWS_PER_FILE),
            "customer": random.integers(0, 100_000, ROWS_PER_FILE, dtype=np.int32),
            "cents": random.integers(0, 20_000, ROWS_PER_FILE),
            "kind": kinds.take(pa.array(random.integers(0, 4, ROWS_PER_FILE))),
            "rate": random.random(ROWS_PER_FILE),
        },
        schema=SCHEMA,
    )
    pq.write_table(table, path)
    return path


def _fingerprint(out: Path) -> dict[str, int]:
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


def _check_equal(results: dict[str, dict[str, Any]]) -> None:
    checks = {name: result["check"] for name, result in results.items()}
    if len({str(check) for check in checks.values()}) != 1:
        raise HoldfastError(f"the sides wrote different rows: {checks}.")
