"""`preserve()` in front of a region, against a source of the same rows that can replay by itself.

Both sources have their rows in memory and hand them to the region in the same slices; ours appends them to a log, waits for the disk, and
reads them there. Behind them a filter and files, in a region with 2 s epochs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.bench.logs.append import make_batch
from holdfast.bench.logs.filled import WIDTH
from holdfast.bench.logs.taking_turns import seconds_of, shares, take_turns
from holdfast.bench.measure.inputs import rows_in
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.ratios import Ratio, speedup_of
from holdfast.bench.measure.side_holdfast import PERIOD_S
from holdfast.language.connectors import Slice, Source, Stamp
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Preserved
from holdfast.sources.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICE_ROWS = 50_000
ROWS = 4_000_000
SLICES = 4
"""In a step."""


class Given(Source):
    """The same SLICE_ROWS rows again and again, `rows` in all, so many times them in a slice."""

    def __init__(self, rows: int, times: int) -> None:
        batch = make_batch(WIDTH, WIDTH * SLICE_ROWS)
        self._table, self._rows, self._next = pa.Table.from_batches([batch] * times), rows, 0

    def schema(self) -> pa.Schema:
        found: pa.Schema = self._table.schema
        return found

    def seek(self, state: Any | None) -> None:
        self._next = 0 if state is None else state

    def next_slice(self) -> Slice | None:
        start, self._next = self._next, min(self._rows, self._next + self._table.num_rows)
        return None if start == self._next else Slice(start, self._next, self._next - start)

    def snapshot(self) -> Any:
        return self._next

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        table = self._table.slice(0, piece.end - piece.start)
        return table if stamp is None else stamp.put_on(table, piece.start)

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        table = self.read_arrow(piece, stamp)
        return session.createDataFrame(table, spark_schema(table.schema))


class Heard(Given):
    """The same, and nobody can ask for a row again."""

    replayable: ClassVar[bool] = False


def measure_preserve(
    place: Place, scale: float, pairs: int, seconds: float
) -> tuple[dict[str, Ratio], dict[str, Any]]:
    rows = max(100, round(scale * ROWS))
    sides = {name: partial(_run, place, rows, name) for name in ("preserved", "replayable")}
    rounds = take_turns(place, sides, pairs, seconds)
    report = {
        "preserve_seconds": seconds_of(rounds),
        "preserve_rows": rows,
        "preserve_rows_per_s": {
            name: round(rows * len(rounds) / sum(each[name] for each in rounds)) for name in sides
        },
    }
    return {"preserve_ratio": speedup_of(shares(rounds, "replayable", "preserved"))}, report


def _run(place: Place, rows: int, name: str) -> int:
    """Rows that became visible."""
    with place.directory(name) as here:
        source: Source = (
            Given(rows, SLICES)
            if name == "replayable"
            else Preserved(Heard(rows, 1), here / "log", rows_per_step=SLICES * SLICE_ROWS)
        )
        topology = Topology("bench")
        stream = topology.source(source, name="in").consistent("bench", period=PERIOD_S)
        stream.filter("value < 0.5").sink(FileSink(here / "out", "parquet"), name="out")
        topology.run(place.session, store=f"file:{here}/store", until="available")
        return rows_in(here / "out")
