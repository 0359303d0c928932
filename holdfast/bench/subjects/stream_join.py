"""`holdfast bench stream-join`: two streams with equal keys and event times within 10 s, against Structured Streaming.

Together 100,000 rows per second of event time, 10,000 keys, one file of each stream per step and second, Parquet out:
in the long run each row meets a hundred of the other stream. What every side wrote is compared with what the input
comes to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

STREAMS = ("left", "right")
WITHIN_S, DELAY_S = 10, 2


SHAPE = Shape(rows=100_000, keys=10_000, warm_up_steps=12, steps_at_least=15)


class TwoStreams(Inputs):
    """A directory per stream; file *n* has the rows of second *n*."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self.shape = shape
        super().__init__(root, shape.rows, 0, lambda path, number: None)

    def link(self, directory: Path, steps: int, prefix: str = "part") -> None:
        for stream in STREAMS:
            (directory / stream).mkdir()
            for number in range(steps):
                path = directory / stream / f"{prefix}-{number:05}.parquet"
                write_timed(path, *self.columns(stream, number))

    def columns(self, stream: str, number: int) -> tuple[Any, Any, Any]:
        """(microseconds, keys, values) of a file."""
        random = np.random.default_rng([self.shape.keys, number, STREAMS.index(stream)])
        count = self.shape.rows // 2
        at = BEGIN_US + number * SECOND_US + np.arange(count) * SECOND_US // count
        return at, random.integers(0, self.shape.keys, count), random.integers(0, 1_000, count)

    def wanted(self, steps: int) -> dict[str, int]:
        """How many pairs there are and what their values come to, computed without any of the sides."""
        left, right = (
            [np.concatenate(part) for part in zip(*(self.columns(s, n) for n in range(steps)), strict=True)]
            for s in STREAMS
        )
        span = (steps + 2 * WITHIN_S + 2) * SECOND_US
        order = np.lexsort((right[0], right[1]))
        places = right[1][order] * span + (right[0][order] - BEGIN_US) + WITHIN_S * SECOND_US
        sums = np.concatenate(([0], np.cumsum(right[2][order])))
        first = left[1] * span + (left[0] - BEGIN_US)
        low = np.searchsorted(places, first, "left")
        high = np.searchsorted(places, first + 2 * WITHIN_S * SECOND_US, "right")
        return {
            "rows": int((high - low).sum()),
            "value": int((left[2] * (high - low)).sum()),
            "value_right": int((sums[high] - sums[low]).sum()),
        }


def look(inputs: TwoStreams, out: Path, steps: int) -> dict[str, int]:
    """What a side wrote must be every pair, once: as many, of the same values, none too far apart."""
    found = {"rows": 0, "value": 0, "value_right": 0}
    for file in out.glob("*.parquet"):
        table = pq.read_table(file)
        if not table.num_rows:
            continue
        found["rows"] += table.num_rows
        for name in ("value", "value_right"):
            found[name] += pc.sum(table.column(name)).as_py()
        apart = np.abs(
            np.subtract(*(table.column(n).cast(pa.int64()).to_numpy() for n in ("at", "at_right")))
        )
        if apart.max() > WITHIN_S * SECOND_US:
            raise HoldfastError("a side wrote a pair that is too far apart.")
    wanted = inputs.wanted(steps)
    if found != wanted:
        raise HoldfastError(f"a side wrote pairs that come to {found} instead of {wanted}.")
    return found


# --- sides ----------------------------------------------------------------------------------------------------------


def _ours(files: Path, out: Path) -> Topology:
    topology = Topology("bench")
    left, right = (
        topology.source(
            Files(str(files / name), format="parquet", schema=TIMED_SCHEMA, max_files_per_step=1), name=name
        ).consistent(name="bench", period=PERIOD_S)
        for name in STREAMS
    )
    joined = left.join(right, "key", within=WITHIN_S, on="at", delay=DELAY_S, name="joined")
    joined.sink(FileSink(str(out), format="parquet"), name="out")
    return topology


def _theirs(place: Place, files: Path, out: Path) -> Stretch:
    with place.directory("checkpoint") as checkpoint:
        given = (place.session, THEIRS, files, out, checkpoint)
        return side_spark.run_query(*given, query=joined, schema=TIMED_SCHEMA, mode="append", streams=STREAMS)


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """The join of the benchmark, in Spark's words."""
    other = right.select(
        F.col("at").alias("at_right"), F.col("key").alias("other"), F.col("value").alias("value_right")
    ).withWatermark("at_right", f"{DELAY_S} seconds")
    near = F.expr(
        f"key = other and at_right >= at - interval {WITHIN_S} seconds"
        f" and at_right <= at + interval {WITHIN_S} seconds"
    )
    return left.withWatermark("at", f"{DELAY_S} seconds").join(other, near).drop("other")


SETTINGS = {"join": f"equal keys, at most {WITHIN_S} s apart, delay {DELAY_S} s"}
bench_stream_join = Duel("stream-join", SHAPE, TwoStreams, _ours, _theirs, look, SETTINGS).run
