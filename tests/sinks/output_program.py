"""A job that writes by partitions and rolls, to be killed: counts and sums per key, and the rows themselves.

argv: engine (local or spark), directory. On Spark the rows are Parquet files, so keyed steps take the short way.
"""

from __future__ import annotations

import sys
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.testing import run_local

ROWS, STEP = 800, 40


def rows() -> list[tuple[int, str | None, date]]:
    keys = ["a", "b/c", None, "x y", "ü=%"]
    return [(n, keys[n * 7 % 5], date(2026, 1, 1) + timedelta(days=n // 300)) for n in range(ROWS)]


def main(engine: str, here: str) -> None:
    topology = hf.Topology("outputs")
    schema = "n long, k string, day date"
    if engine == "spark":
        source: hf.Source = hf.Files(f"{here}/in", "parquet", schema, max_rows_per_step=STEP)
        prepare_input(Path(here) / "in")
    else:
        source = hf.Rows(rows(), schema, rows_per_step=STEP)
    stream = topology.source(source, name="in").consistent(name="region", period=0.05)
    sums = stream.aggregate(["k", "day"], n=hf.count(), total=hf.sum("n"), name="sums")
    sums.sink(hf.FileSink(f"{here}/sums", "parquet", partition_by=["k", "day"], roll="4 KB"), name="sums_out")
    stream.sink(
        hf.FileSink(f"{here}/rows", "json", partition_by="day", roll=("2 KB", "1 hour")), name="rows_out"
    )
    stream.sink(hf.FileSink(f"{here}/all", "parquet", roll="1 GB"), name="all_out")
    store = f"file:{here}/store"
    if engine == "local":
        run_local(topology, store=store, until="available")
        return
    from holdfast.runtime.engines.spark.session import make_session

    session = make_session("outputs", "local[2]", {"spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("OFF")
    topology.run(session, store=store, until="available")
    session.stop()


def prepare_input(directory: Path) -> None:
    if not directory.exists():
        directory.mkdir(parents=True)
        columns = list(zip(*rows(), strict=True))
        table = pa.table({"n": columns[0], "k": columns[1], "day": pa.array(columns[2], pa.date32())})
        pq.write_table(table, directory / ".new")
        (directory / ".new").rename(directory / "in.parquet")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
