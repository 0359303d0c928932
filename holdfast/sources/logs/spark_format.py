"""`format("holdfast-log")`: logs for programs of Spark that have no topology. Batch and streaming, both ways.

    hf.register_log_format(spark)
    spark.read.format("holdfast-log").load("logs/clicks")
    spark.readStream.format("holdfast-log").option("maxRowsPerTrigger", 10000).load("logs/clicks")
    frame.writeStream.format("holdfast-log").option("writer", "clean").start("logs/clean")

Spark builds these objects anew in other processes whenever it likes: what they know comes from options and from the log.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from holdfast import durable
from holdfast.errors import ConfigError, OwnedError
from holdfast.log.log import Log
from holdfast.sources.logs.positions import Positions, PositionsReader, look, schema_of
from holdfast.sources.logs.spark_versions import (
    HAS_LIMITS,
    DataSourceStreamArrowWriter,
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    need_arrow_streams,
)
from holdfast.sources.schemas import arrow_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

NAME = "holdfast-log"
PATIENCE_S = 60.0
"""How long a commit waits for another writer of the same log to be done."""
STARTS = ("beginning", "now")

Offset = dict[str, int]
"""By partition: position of the next row."""


def register_log_format(session: SparkSession) -> None:
    """Let this session read and write logs as `format("holdfast-log")`."""
    session.dataSource.register(LogFormat)


class LogFormat(DataSource):
    """What Spark asks first. Options: `path`; for streams `start` ("beginning", "now") and `maxRowsPerTrigger`; for writing
    a stream `writer`, its name."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def _path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise ConfigError(f'{NAME} needs a path: .load("logs/clicks").')
        return str(path).removeprefix("file:")

    def schema(self) -> StructType:
        return spark_schema(schema_of(Log(self._path()).schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._path())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        start = self.options.get("start", "beginning")
        if start not in STARTS:
            raise ConfigError(
                f"a stream of a log cannot start at {start!r}.", cure='Use "beginning" or "now".'
            )
        most = self.options.get("maxRowsPerTrigger")
        if HAS_LIMITS:
            return StreamReader(self._path(), start, None if most is None else int(most))
        if most is not None:
            raise ConfigError(
                "maxRowsPerTrigger needs Spark 4.2: earlier versions do not say behind which rows a batch begins.",
                cure="Leave it out, or use Spark 4.2 or newer.",
            )
        return WholeStreamReader(self._path(), start, None)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        _refuse_overwrite(overwrite, 'mode("append")')
        return BatchWriter(self._path(), arrow_of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        need_arrow_streams()
        _refuse_overwrite(overwrite, 'outputMode("append")')
        name = self.options.get("writer")
        if not name:
            raise ConfigError(
                "a stream into a log needs the name of its writer: by it a batch that Spark repeats is known.",
                cure='Say .option("writer", "clean"), and the same in every run of the query.',
            )
        return StreamWriter(self._path(), arrow_of(schema), name)


def _refuse_overwrite(overwrite: bool, instead: str) -> None:
    if overwrite:
        raise ConfigError("rows of a log are never overwritten.", cure=f"Use {instead}.")


# --- reading --------------------------------------------------------------------------------------------------------


class LogPart(InputPartition):
    """Some positions, read by one task."""

    def __init__(self, positions: Positions) -> None:
        super().__init__(positions.start)
        self.positions = positions


def _read(part: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(part, LogPart):
        return  # where there is nothing to be read Spark asks for a part of its own
    schema = schema_of(Log(part.positions.root).schema)
    for table in PositionsReader(part.positions, schema, None).tables(schema.names):
        yield from table.to_batches()


def _parts(log: Log, start: Mapping[str, int], end: Mapping[str, int]) -> list[LogPart]:
    found = []
    for partition, behind in end.items():
        positions = look(log, int(partition), start.get(partition, 0), behind)
        found += [LogPart(part) for part in positions.for_tasks()]
    return found


def _ends(log: Log) -> Offset:
    return {str(partition): log.bounds(partition).end for partition in range(log.partitions)}


def _lows(log: Log) -> Offset:
    return {str(partition): log.bounds(partition).low for partition in range(log.partitions)}


class BatchReader(DataSourceReader):
    """All rows that count now. It does not take Spark's conditions (`pushFilters`) to leave rows out: Spark 4.3 keeps what a reader answered to
    the conditions of one query, and reads no more for the next one that the same DataFrame is asked."""

    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> Sequence[InputPartition]:
        log = Log(self._path)
        return _parts(log, _lows(log), _ends(log))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Rows that count, batch by batch. Offsets are positions by partition."""

    def __init__(self, path: str, start: str, most: int | None) -> None:
        self._path, self._start, self._most = path, start, most
        self._last: Offset | None = None

    def initialOffset(self) -> Offset:
        log = Log(self._path)
        return _lows(log) if self._start == "beginning" else _ends(log)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = _ends(Log(self._path))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        ends = self._last if self._last is not None else _ends(Log(self._path))
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(ends.values())
        found = {}
        for partition, behind in ends.items():
            at = start.get(partition, 0)
            found[partition] = at + max(0, min(behind - at, left))
            left -= found[partition] - at
        return found

    def reportLatestOffset(self) -> Offset | None:
        return _ends(Log(self._path))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return _parts(Log(self._path), start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class WholeStreamReader(StreamReader):
    """Before Spark 4.2: each batch takes all that counts. Spark itself sees to `availableNow`."""

    def latestOffset(self) -> Offset:  # type: ignore[override]
        return _ends(Log(self._path))


# --- writing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task wrote."""

    path: str
    rows: int


def _stage(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Rows of a task beside the log: nobody sees them before the commit."""
    place = Path(path).absolute() / "tmp"
    place.mkdir(parents=True, exist_ok=True)
    target, rows = place / f"spark-{secrets.token_hex(8)}.arrow", 0
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            rows += batch.num_rows
    return Staged(str(target), rows)


def _drop(messages: Sequence[WriterCommitMessage | None]) -> None:
    for message in messages:
        if isinstance(message, Staged):
            durable.remove_quietly(Path(message.path))


def _append(path: str, schema: pa.Schema, messages: Sequence[Any], writer: str, sequence: int | None) -> None:
    """All rows of all tasks by one append: all or none of them are there. Again with the same sequence changes nothing."""
    parts = [pa.ipc.open_file(pa.memory_map(each.path)).read_all() for each in messages if each and each.rows]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        log = Log(path, schema=schema)
        try:
            if rows.num_rows:
                log.writer(writer).append(rows, sequence=sequence, wait=True)
            return
        except OwnedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        finally:
            log.close()


class BatchWriter(DataSourceArrowWriter):
    """Rows are there when the job is done, all of them or none."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage(self._path, self._schema, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _append(self._path, self._schema, messages, "spark", None)
        _drop(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _drop(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Each batch of a query is in the log once, also if Spark repeats it: the log knows the last one of each writer."""

    def __init__(self, path: str, schema: pa.Schema, name: str) -> None:
        self._path, self._schema, self._name = path, schema, name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage(self._path, self._schema, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _append(self._path, self._schema, messages, self._name, batchId + 1)
        _drop(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _drop(messages)
