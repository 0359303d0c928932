"""`holdfast bench window`: sliding windows of 10 s every second over event time, per key, against Structured Streaming.

100,000 rows per second of event time, up to half a second out of order, a thousand keys, one file per step and second;
sum, count and max per window and key, Parquet out. Both sides wait two seconds for rows that lag behind. What every side
wrote is compared with what the input comes to; rows are never late here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.bench.measure import side_spark
from holdfast.bench.measure.alternate import Stretch
from holdfast.bench.measure.inputs import BEGIN_US, SECOND_US, TIMED_SCHEMA, Inputs, write_timed
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.side_holdfast import PERIOD_S
from holdfast.bench.subjects.duel import THEIRS, Duel, Shape
from holdfast.errors import HoldfastError
from holdfast.language.operators import aggregates, windows
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

SIZE_S, SLIDE_S, DELAY_S = 10, 1, 2


SHAPE = Shape(rows=100_000, keys=1_000, warm_up_steps=25, steps_at_least=20)


class TimedInputs(Inputs):
    """File *n* has the rows of second *n*."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self.shape = shape
        super().__init__(root, shape.rows, 0, self._write)

    def link(self, directory: Path, steps: int, prefix: str = "part") -> None:
        for number in range(steps):
            self._write(directory / f"{prefix}-{number:05}.parquet", number)

    def columns(self, number: int) -> tuple[Any, Any, Any]:
        """(microseconds, keys, values) of a file."""
        random = np.random.default_rng([self.shape.keys, number])
        begin = BEGIN_US + number * SECOND_US
        even = begin + np.arange(self.shape.rows) * SECOND_US // self.shape.rows
        at = np.maximum(even - random.integers(0, SECOND_US // 2, self.shape.rows), BEGIN_US)
        return at, random.integers(0, self.shape.keys, len(at)), random.integers(0, 1_000, len(at))

    def _write(self, path: Path, number: int) -> None:
        write_timed(path, *self.columns(number))

    def sums(self, steps: int) -> Mapping[str, Any]:
        """Per second and key, computed without any of the sides."""
        shape = (steps, self.shape.keys)
        found = {name: np.zeros(shape, dtype=np.int64) for name in ("total", "n", "top")}
        for number in range(steps):
            at, keys, values = self.columns(number)
            place = ((at - BEGIN_US) // SECOND_US, keys)
            np.add.at(found["total"], place, values)
            np.add.at(found["n"], place, 1)
            np.maximum.at(found["top"], place, values)
        return found


def look(inputs: TimedInputs, out: Path, steps: int) -> dict[str, int]:
    """Every window a side wrote must be right, and there must be those that both had time to complete."""
    table = pa.concat_tables([pq.read_table(file) for file in sorted(out.glob("*.parquet"))])
    ends = (table.column("window_end").cast(pa.int64()).to_numpy() - BEGIN_US) // SECOND_US
    sums = inputs.sums(steps)
    keys = table.column("key").to_numpy()
    for name, fold in (("total", np.sum), ("n", np.sum), ("top", np.max)):
        for end in np.unique(ends):
            wanted = fold(sums[name][max(0, end - SIZE_S) : end], axis=0)
            rows = ends == end
            if not (table.column(name).to_numpy()[rows] == wanted[keys[rows]]).all():
                raise HoldfastError(
                    f"a side wrote a wrong {name} for the window that ends with second {end}."
                )
    common = ends <= steps - DELAY_S - 3  # Structured Streaming learns of a watermark one micro-batch later
    seen = np.unique(ends[common])
    pairs = int((inputs.sums(steps)["n"][: steps - DELAY_S - 3].cumsum(axis=0) > 0)[-1].sum())
    if len(seen) != steps - DELAY_S - 3 or common.sum() > len(seen) * inputs.shape.keys:
        raise HoldfastError(f"a side wrote {len(seen)} complete windows of {steps - DELAY_S - 3}.")
    return {"windows": len(seen), "rows": int(common.sum()), "keys": pairs}


# --- sides ----------------------------------------------------------------------------------------------------------


def _ours(files: Path, out: Path) -> Topology:
    topology = Topology("bench")
    source = Files(str(files), format="parquet", schema=TIMED_SCHEMA, max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(name="bench", period=PERIOD_S)
    made = rows.aggregate(
        "key",
        window=windows.sliding(SIZE_S, SLIDE_S, on="at", delay=DELAY_S),
        name="windows",
        total=aggregates.sum("value"),
        n=aggregates.count(),
        top=aggregates.max("value"),
    )
    made.sink(FileSink(str(out), format="parquet"), name="out")
    return topology


def _theirs(place: Place, files: Path, out: Path) -> Stretch:
    with place.directory("checkpoint") as checkpoint:
        return side_spark.run_query(
            place.session, THEIRS, files, out, checkpoint, query=windowed, schema=TIMED_SCHEMA, mode="append"
        )


def windowed(rows: DataFrame) -> DataFrame:
    """The windows of the benchmark, in Spark's words."""
    grouped = rows.withWatermark("at", f"{DELAY_S} seconds").groupBy(
        F.window("at", f"{SIZE_S} seconds", f"{SLIDE_S} seconds"), "key"
    )
    made = grouped.agg(F.sum("value").alias("total"), F.count("*").alias("n"), F.max("value").alias("top"))
    return made.select(
        F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "key", "total", "n", "top"
    )  # fmt: skip


SETTINGS = {"window": f"{SIZE_S} s every {SLIDE_S} s, delay {DELAY_S} s"}
bench_window = Duel("window", SHAPE, TimedInputs, _ours, _theirs, look, SETTINGS).run
