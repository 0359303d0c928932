"""`holdfast bench stream-join`: two streams with equal keys and event times within 10 s, against Structured Streaming.

Together 100,000 rows per second of event time, 10,000 keys, one file of each stream per step and second, Parquet out:
in the long run each row meets a hundred of the other stream. What every side wrote is compared with what the input
comes to.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from holdfast.bench.measure.inputs import Inputs
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.side_holdfast import PERIOD_S
from holdfast.bench.subjects.duel import THEIRS, duel
from holdfast.errors import HoldfastError
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

STREAMS = ("left", "right")
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("value", pa.int64())])
BEGIN_US = 1_790_000_000_000_000
SECOND_US = 1_000_000
WITHIN_S, DELAY_S = 10, 2


@dataclass(frozen=True)
class Shape:
    """How large the benchmark is. `rows`: of both streams together, per second and step."""

    rows: int = 100_000
    keys: int = 10_000
    warm_up_steps: int = 12
    steps_at_least: int = 15


class TwoStreams(Inputs):
    """A directory per stream; file *n* has the rows of second *n*."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self.shape = shape
        super().__init__(root, shape.rows, 0, lambda path, number: None)

    def link(self, directory: Path, steps: int, prefix: str = "part") -> None:
        for stream in STREAMS:
            (directory / stream).mkdir()
            for number in range(steps):
                at, keys, values = self.columns(stream, number)
                columns = [pa.array(at).cast(SCHEMA.field("at").type), pa.array(keys), pa.array(values)]
                table = pa.Table.from_arrays(columns, schema=SCHEMA)
                pq.write_table(table, directory / stream / f"{prefix}-{number:05}.parquet")

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


def bench_stream_join(
    shape: Shape | None = None, *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    shape = shape or Shape()
    return duel(
        "stream-join",
        lambda root: TwoStreams(root, shape),
        _ours,
        _theirs,
        look,
        warm_up_steps=shape.warm_up_steps,
        steps_at_least=shape.steps_at_least,
        pairs=pairs,
        seconds=seconds,
        quiet=quiet,
        rows_per_step=shape.rows,
        keys=shape.keys,
        join=f"equal keys, at most {WITHIN_S} s apart, delay {DELAY_S} s",
    )


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
            Files(str(files / name), format="parquet", schema=SCHEMA, max_files_per_step=1), name=name
        ).consistent(name="bench", period=PERIOD_S)
        for name in STREAMS
    )
    joined = left.join(right, "key", within=WITHIN_S, on="at", delay=DELAY_S, name="joined")
    joined.sink(FileSink(str(out), format="parquet"), name="out")
    return topology


def _theirs(place: Place, files: Path, out: Path) -> Stretch:
    with place.directory("checkpoint") as checkpoint:
        return side_spark.run_query(
            place.session,
            THEIRS,
            files,
            out,
            checkpoint,
            query=joined,
            schema=SCHEMA,
            mode="append",
            streams=STREAMS,
        )


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
