"""Child of test_operators_survive_kills: `first` runs operators that sum up, join, order, rank and wait over half of the
input; `then` runs changed ones over all of it, whose rows have one column more, on another number of partitions."""

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
    """Two streams, of which the second has fewer rows of each key."""
    numbers = range(part * ROWS, (part + 1) * ROWS)
    at = pa.array([BEGIN + datetime.timedelta(seconds=n) for n in numbers], pa.timestamp("us", tz="UTC"))
    table = pa.table({"at": at, "k": [f"k{n % 7}" for n in numbers], "v": list(numbers)})
    if part:
        table = table.append_column("extra", table.column("v"))
    for name, rows in {"others": table.take(list(range(0, ROWS, 2))), "in": table}.items():
        Path(f"{here}/{name}").mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, f"{here}/{name}/part-{part}.parquet")


def main(phase: str, here: str) -> None:
    then = phase == "then"
    if not Path(f"{here}/in/part-{int(then)}.parquet").exists():
        feed(here, int(then))
    topology = hf.Topology("evolving")
    schema = "at timestamp, k string, v long" + (", extra long" if then else "")
    rows, others = (
        topology.source(
            hf.Files(f"{here}/{name}", "parquet", schema, max_rows_per_step=10), name=name
        ).consistent(name="region", period=0.02)
        for name in ("in", "others")
    )
    more = {"top": hf.max("v")} if then else {"total": hf.sum("v")}
    sums = rows.aggregate("k", "each", n=hf.count(), name="sums", **more)
    pairs = rows.join(rows, "k", within=60, on="at", name="pairs", delay=0)
    streams = {
        "sums": sums,
        "pairs": pairs,
        "ordered": rows.sort("at", delay=20, name="ordered"),
        "best": rows.top_n(3, by="k", order="-v", window=hf.tumbling(45, on="at", delay=20), name="best"),
        "near": rows.aggregate(
            "k", window=hf.sliding(delta=40, of="v", every=2), n=hf.count(), name="near", **more
        ),
        "both": rows.zip(others, by="k", name="both"),
    }
    for name, stream in streams.items():
        stream.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store", partitions=3 if then else 2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
