"""Rows that tasks can read by themselves: they become a DataFrame only where Catalyst has something to do.

A keyed operator right behind a source or a connection needs no plan, no row-to-Arrow transfer and, with few
partitions, no shuffle: every task reads the columns it needs and keeps the rows whose keys it owns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from holdfast.language.connectors import POSITION_COLUMNS, TIME_COLUMN, Sink, StepId, TaskReader
from holdfast.language.tables import parts_of, tables_of
from holdfast.operators.expressions.change import ChangedReader
from holdfast.operators.shared.timed import times_of
from holdfast.runtime.links.batch import Batch
from holdfast.sources.file_spark import counted, observed
from holdfast.sources.schemas import arrow_of
from holdfast.sources.small.sizes import SMALL_ROWS
from holdfast.sources.text.certain_reader import CertainReader

MOST_BYTES = 16 << 20
"""What expressions may make of a few rows, to be kept in the driver."""

logger = logging.getLogger("holdfast")


class ReadableRows:
    """A frame that has not been made yet, nor the reader: whoever needs one of them asks for it. `bytes`: what reading
    costs; `batch`: the batch they are, if they are one; `columns`: what the reader has, `rows`: how many there are, if that is known. Used
    by one thread."""

    def __init__(
        self,
        make_reader: Callable[[], TaskReader | None],
        bytes: int,
        make_frame: Callable[[], DataFrame],
        batch: Batch | None = None,
        columns: pa.Schema | None = None,
        rows: int | None = None,
    ) -> None:
        self.bytes = bytes
        self.rows = rows
        self.batch = batch
        self.columns = columns
        self._make_reader = make_reader
        self._make_frame = make_frame

    @cached_property
    def reader(self) -> TaskReader | None:
        """How tasks read them; None: they cannot after all."""
        return self._make_reader()

    @cached_property
    def frame(self) -> DataFrame:
        return self._make_frame()

    def shared(self) -> ReadableRows:
        """The same rows for several readers; the frame, if it is ever made, is kept by Spark."""

        def kept() -> DataFrame:
            return self._make_frame().persist(StorageLevel.MEMORY_AND_DISK)

        return ReadableRows(self._make_reader, self.bytes, kept, self.batch, self.columns, self.rows)

    def unshare(self) -> None:
        if "frame" in self.__dict__:
            self.frame.unpersist()

    def mapped(self, change: Callable[[DataFrame], DataFrame]) -> ReadableRows:
        """The same rows; the frame, if it is ever made, with other columns (some that nobody reads dropped)."""
        return ReadableRows(lambda: self.reader, self.bytes, lambda: change(self.frame), rows=self.rows)


def as_frame(rows: DataFrame | ReadableRows) -> DataFrame:
    return rows.frame if isinstance(rows, ReadableRows) else rows


def united(parts: Sequence[ReadableRows], make_frame: Callable[[], DataFrame]) -> ReadableRows:
    """The rows of all parts."""

    def make_reader() -> TaskReader | None:
        readers = [reader for part in parts if (reader := part.reader) is not None]
        return UnionReader(tuple(readers)) if len(readers) == len(parts) else None

    first = parts[0].columns
    alike = first is not None and all(part.columns == first for part in parts)
    known = [part.rows for part in parts if part.rows is not None]
    return ReadableRows(
        make_reader,
        sum(part.bytes for part in parts),
        make_frame,
        columns=first if alike else None,
        rows=sum(known) if len(known) == len(parts) else None,
    )


@dataclass(frozen=True)
class UnionReader:
    """Reads one part after the other."""

    members: tuple[TaskReader, ...]

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables([part(columns) for part in self.members])

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        return (table for part in self.members for table in tables_of(part, columns))

    def parts(self) -> list[TaskReader]:
        return [part for each in self.members for part in parts_of(each)]


def spark_times(frame: DataFrame, on: str) -> DataFrame:
    """Positions and event times of a DataFrame's rows, without those that have no time."""
    column = F.col("`" + on.replace("`", "``") + "`")
    if isinstance(frame.schema[on].dataType, TimestampNTZType):
        at = F.timestamp_diff("MICROSECOND", F.lit("1970-01-01").cast("timestamp_ntz"), column)
    else:
        at = F.unix_micros(column)
    return frame.where(column.isNotNull()).select(*POSITION_COLUMNS, at.alias(TIME_COLUMN))


def timed(rows: ReadableRows, on: str) -> ReadableRows:
    """Positions and event times of rows."""

    def make_reader() -> TaskReader | None:
        return None if rows.reader is None else TimesReader(rows.reader, on)

    return ReadableRows(make_reader, rows.bytes, lambda: spark_times(rows.frame, on))


@dataclass(frozen=True)
class TimesReader:
    """Reads the event times of rows."""

    rows: TaskReader
    on: str

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return times_of(self.rows((*POSITION_COLUMNS, self.on)), self.on)

    def parts(self) -> list[TaskReader]:
        return [TimesReader(part, self.on) for part in parts_of(self.rows)]


def may_decline(reader: TaskReader | None) -> bool:
    """Whether a task that reads so may come upon rows that are for Spark."""
    match reader:
        case ChangedReader() | CertainReader():
            return True
        case UnionReader(members):
            return any(map(may_decline, members))
        case TimesReader(rows):
            return may_decline(rows)
    return False


@dataclass(frozen=True)
class TableReader:
    """A small table that travels with the task."""

    table: pa.Table

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return self.table.select(list(columns))


def collected(frame: DataFrame) -> Callable[[], TaskReader | None]:
    """How rows are read that expressions make of a few rows: by a small job, whose answer travels. None: they are not few after all, or
    something went wrong, which happens again where all is told about it."""

    def make_reader() -> TaskReader | None:
        try:
            table = frame.limit(SMALL_ROWS + 1).toArrow()
            if table.num_rows <= SMALL_ROWS and table.nbytes <= MOST_BYTES:
                return TableReader(table.cast(arrow_of(frame.schema)))
        except Exception as error:
            logger.debug("rows are not read in the driver: %s", error)
        return None

    return make_reader


@dataclass(frozen=True)
class BatchReader:
    """Reads batches that travelled over a connection."""

    files: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        schema = pa.schema([self.schema.field(name) for name in columns])
        tables = [pq.ParquetFile(file).read(list(columns), use_threads=False) for file in self.files]
        return pa.concat_tables([table.select(schema.names).cast(schema) for table in tables])

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        return (part(columns) for part in self.parts())

    def parts(self) -> list[BatchReader]:
        return [BatchReader((file,), self.schema) for file in self.files]


# --- how many rows a sink got -----------------------------------------------------------------------------------------

TRIES = 3
"""A function that reads its rows otherwise, by `df.rdd` for example, is asked no more often: each time costs a wait."""


class RowCounts:
    """How many rows a sink got whose writing is a job of Spark's, or a function of the user's that reads them as it likes. What the driver
    knows is enough; else the first action of Spark SQL that reads all rows counts them on their way.

    Of one engine. A sink is used by one thread."""

    def __init__(self) -> None:
        self._missed: Counter[Sink] = Counter()

    def write(self, sink: Sink, frame: DataFrame | ReadableRows, step: StepId) -> int | None:
        """Let the sink write; how many rows it got, None if nobody can tell."""
        known = frame.rows if isinstance(frame, ReadableRows) else None
        if known is not None or self._missed[sink] >= TRIES:
            sink.write_spark(as_frame(frame), step)
            return known
        counters: list[Observation] = []
        sink.write_spark(counted(as_frame(frame), counters), step)
        rows = observed(counters)
        self._missed[sink] = 0 if rows is not None else self._missed[sink] + 1
        return rows
