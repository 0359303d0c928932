"""On Spark: a savepoint of a live run, a fork of it with a changed operator, and an operator that begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.cli.main import run_command

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = 20
ROWS = 500


def add(root: Path, number: int) -> None:
    """One more file of rows."""
    (root / "in").mkdir(exist_ok=True)
    values = np.random.default_rng(number).integers(0, 1000, ROWS)
    table = pa.table({"k": np.arange(ROWS) % KEYS, "v": values})
    pq.write_table(table, root / "in" / f"part-{number}.parquet")


def topology(root: Path, out: str, **more: Any) -> hf.Topology:
    made = hf.Topology("forked")
    rows = made.source(hf.Files(str(root / "in"), "parquet", "k long, v long"), name="rows")
    sums = rows.consistent("r", period=0.2).aggregate(
        "k", n=hf.count(), total=hf.sum("v"), name="sums", **more
    )
    sums.sink(hf.FileSink(str(root / out), "parquet"), name="out")
    return made


def newest(root: Path, out: str) -> dict[int, dict[str, int]]:
    """The row of each key that was shown last: the one with the most rows behind it."""
    found: dict[int, dict[str, int]] = {}
    for file in sorted((root / out).glob("part-*.parquet")):
        for row in pq.read_table(file).to_pylist():
            found[row["k"]] = row
    return found


def sums_of(root: Path, numbers: range) -> dict[int, int]:
    tables = [pq.read_table(root / "in" / f"part-{number}.parquet") for number in numbers]
    keys, values = (np.concatenate([table.column(name).to_numpy() for table in tables]) for name in "kv")
    return {key: int(values[keys == key].sum()) for key in range(KEYS)}


def holdfast(*arguments: object) -> None:
    assert run_command([str(argument) for argument in arguments]) == 0


def test_a_savepoint_of_a_live_run_is_forked_and_an_operator_begins_anew(spark: Any, tmp_path: Path) -> None:
    store, fork = tmp_path / "store", tmp_path / "fork"
    add(tmp_path, 0)
    job = topology(tmp_path, "out").submit(spark=spark, store=str(store))
    try:
        while not newest(tmp_path, "out"):
            job.await_termination(timeout=0.1)  # raises what made it fail
        holdfast("savepoint", store, "before", "--timeout", 60)
    finally:
        job.stop()
        job.await_termination()
    add(tmp_path, 1)
    topology(tmp_path, "out").run(spark, store=str(store), until="available")
    shown = {path.name for path in (tmp_path / "out").iterdir()}

    holdfast("checkpoints", "fork", store, "before", fork)
    topology(tmp_path, "forked", top=hf.max("v")).run(spark, store=str(fork), until="available")
    found = newest(tmp_path, "forked")
    assert {key: row["total"] for key, row in found.items()} == sums_of(tmp_path, range(2))
    values = pq.read_table(tmp_path / "in" / "part-1.parquet").column("v").to_numpy()
    tops = {key: int(values[np.arange(ROWS) % KEYS == key].max()) for key in range(KEYS)}
    assert {key: row["top"] for key, row in found.items()} == tops, "new: it has seen the second file only"
    assert {path.name for path in (tmp_path / "out").iterdir()} == shown, "what was forked is not touched"

    holdfast("checkpoints", "reset-operator", store, "sums", "--yes")
    add(tmp_path, 2)
    topology(tmp_path, "out").run(spark, store=str(store), until="available")
    assert {key: row["total"] for key, row in newest(tmp_path, "out").items()} == sums_of(
        tmp_path, range(2, 3)
    )
