"""Rows that tasks can read by themselves: they become a DataFrame only where Catalyst has something to do.

A keyed operator right behind a source or a connection needs no plan, no row-to-Arrow transfer and, with few
partitions, no shuffle: every task reads the columns it needs and keeps the rows whose keys it owns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from holdfast.language.connectors import TaskReader
from holdfast.runtime.batch import Batch


class ReadableRows:
    """A frame that has not been made yet. `bytes`: what reading them costs; `batch`: the batch they are, if they are
    one. Used by one thread."""

    def __init__(
        self, reader: TaskReader, bytes: int, make: Callable[[], DataFrame], batch: Batch | None = None
    ) -> None:
        self.reader = reader
        self.bytes = bytes
        self.batch = batch
        self._make = make

    @cached_property
    def frame(self) -> DataFrame:
        return self._make()

    def shared(self) -> ReadableRows:
        """The same rows for several readers; the frame, if it is ever made, is kept by Spark."""
        return ReadableRows(
            self.reader, self.bytes, lambda: self._make().persist(StorageLevel.MEMORY_AND_DISK), self.batch
        )

    def unshare(self) -> None:
        if "frame" in self.__dict__:
            self.frame.unpersist()

    def mapped(self, change: Callable[[DataFrame], DataFrame]) -> ReadableRows:
        """The same rows; the frame, if it is ever made, changed (columns nobody reads dropped)."""
        return ReadableRows(self.reader, self.bytes, lambda: change(self.frame))


def as_frame(rows: DataFrame | ReadableRows) -> DataFrame:
    return rows.frame if isinstance(rows, ReadableRows) else rows


def united(parts: Sequence[ReadableRows], make: Callable[[], DataFrame]) -> ReadableRows:
    """The rows of all parts."""
    reader = UnionReader(tuple(part.reader for part in parts))
    return ReadableRows(reader, sum(part.bytes for part in parts), make)


@dataclass(frozen=True)
class UnionReader:
    """Reads one part after the other."""

    parts: tuple[TaskReader, ...]

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables([part(columns) for part in self.parts])


@dataclass(frozen=True)
class BatchReader:
    """Reads batches that travelled over a connection."""

    files: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        schema = pa.schema([self.schema.field(name) for name in columns])
        tables = [pq.ParquetFile(file).read(list(columns), use_threads=False) for file in self.files]
        return pa.concat_tables([table.select(schema.names).cast(schema) for table in tables])
