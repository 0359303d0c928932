"""Child of test_operators_survive_kills: `first` runs an aggregate and a join over half of the input; `then` runs changed
ones over all of it, on another number of partitions."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.testing import run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROWS = 300


def feed(here: str, part: int) -> None:
    Path(f"{here}/in").mkdir(parents=True, exist_ok=True)
    numbers = range(part * ROWS, (part + 1) * ROWS)
    at = pa.array([BEGIN + datetime.timedelta(seconds=n) for n in numbers], pa.timestamp("us", tz="UTC"))
    table = pa.table({"at": at, "k": [f"k{n % 7}" for n in numbers], "v": list(numbers)})
    if part:
        table = table.append_column("extra", table.column("v"))
    pq.write_table(table, f"{here}/in/part-{part}.parquet")


def main(phase: str, here: str) -> None:
    then = phase == "then"
    if not Path(f"{here}/in/part-{int(then)}.parquet").exists():
        feed(here, int(then))
    topology = hf.Topology("evolving")
    schema = "at timestamp, k string, v long" + (", extra long" if then else "")
    rows = topology.source(hf.Files(f"{here}/in", "parquet", schema, max_rows_per_step=10), name="in")
    rows = rows.consistent(period=0.02)
    more = {"top": hf.max("v")} if then else {"total": hf.sum("v")}
    sums = rows.aggregate("k", "each", n=hf.count(), name="sums", **more)
    pairs = rows.join(rows, "k", within=60, on="at", name="pairs")
    for name, stream in (("sums", sums), ("pairs", pairs)):
        stream.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store", partitions=3 if then else 2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
