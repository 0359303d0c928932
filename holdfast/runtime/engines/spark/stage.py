"""What Spark runs over each partition of a keyed operator: small picklable callables over record batches."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from holdfast.durable import remove_quietly
from holdfast.errors import StepFailed
from holdfast.language.connectors import POSITION_COLUMNS, TIMES, Declined, TaskReader, TaskWriter
from holdfast.language.tables import tables_of
from holdfast.operators.python.user_errors import naming_functions
from holdfast.operators.shared.changes import stored_changes
from holdfast.operators.shared.logic import Applied, KeyedLogic, Place, Segments
from holdfast.operators.shared.timed import rising
from holdfast.runtime.engines.engine import KeyedState, KeyedTask
from holdfast.runtime.engines.spark.collector import spare_modules
from holdfast.sinks.encoding import encodings
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.arrays import in_utc
from holdfast.state.keyed.layout import aged
from holdfast.state.keyed.segment import Segment, verify_segment
from holdfast.store.base import SegmentRef, SegmentWriter, Store

RESULT = "partition int, result string"
RESULT_SCHEMA = pa.schema([("partition", pa.int32()), ("result", pa.string())])
"""What every stage yields: one row per partition, its answer as JSON."""

DECLINED = "declined"
"""Of an answer that says only this: whose expressions are for Catalyst in this step, and why."""

BLOB = "partition int, port int, blob binary"
BLOB_SCHEMA = pa.schema([("partition", pa.int32()), ("port", pa.int32()), ("blob", pa.binary())])
"""What goes through a shuffle: Arrow streams, each for one partition, of rows of one input port."""


@dataclass(frozen=True)
class LiveDirectory:
    """Where live segments are. `fixed`: one directory for all (local mode). Otherwise each executor's own, inside the
    directory Spark made for it: it dies with the executor, and no other executor reads it."""

    fixed: str | None
    run: str

    def here(self) -> Path:
        root = self.fixed or os.path.join(os.environ["SPARK_LOCAL_DIRS"].split(",")[0], self.run)
        path = Path(root) / "state"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def check(self, segments: Segments) -> None:
        """Fails the task if a segment is not this executor's own: its element must reset."""
        here = str(self.here())
        for segment in segments:
            if os.path.dirname(segment.path) != here or not os.path.exists(segment.path):
                raise StepFailed(
                    f"the live segment {segment.name} is not on this executor; the one that had it is gone or busy."
                )


@dataclass(frozen=True)
class SplitStage:
    """Mapping side of a shuffle: rows become at most one Arrow blob per partition that they matter to."""

    logic: KeyedLogic
    port: int
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_modules()
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        rows = in_utc(pa.Table.from_batches(received))
        shares = self.logic.shares(self.port, rows, self.partitions)
        blobs = [_blob(share) for share in shares.values()]
        ports = pa.array([self.port] * len(shares), pa.int32())
        yield pa.record_batch(
            [pa.array(list(shares), pa.int32()), ports, pa.array(blobs, pa.binary())], schema=BLOB_SCHEMA
        )


DECLINED_PORT = -(1 << 30)
"""Under this number a mapping task tells, instead of rows, that they are not for it."""


@dataclass(frozen=True)
class ReadSplitStage:
    """Mapping side of a shuffle whose tasks read files themselves: the n-th reads the n-th group of (port, reader)."""

    logic: KeyedLogic
    groups: tuple[tuple[tuple[int, TaskReader], ...], ...]
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                try:
                    for port, reader in self.groups[group]:
                        split = SplitStage(self.logic, port, self.partitions)
                        for rows in tables_of(reader, self.logic.needed(port)):
                            yield from split(iter(rows.combine_chunks().to_batches()))
                except Declined as declined:
                    yield _declined(declined)


def _declined(declined: Declined) -> pa.RecordBatch:
    """For whichever partition comes first."""
    blob = json.dumps([declined.by, str(declined)]).encode()
    columns = [
        pa.array([0], pa.int32()),
        pa.array([DECLINED_PORT], pa.int32()),
        pa.array([blob], pa.binary()),
    ]
    return pa.record_batch(columns, schema=BLOB_SCHEMA)


@dataclass(frozen=True)
class RisingStage:
    """Reduces the times of a partition to those that are later than all before them in it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = [batch for batch in batches if batch.num_rows]
        if received:
            yield from rising(pa.Table.from_batches(received).cast(TIMES)).to_batches()


@dataclass(frozen=True)
class Here:
    """What a partition gave in the driver, and what the task writers answered."""

    applied: Applied
    written: list[Any]


@dataclass(frozen=True)
class KeyedStage:
    """Applies a step to one partition: its new segments, where the output is, what task writers answered."""

    task: KeyedTask
    state: KeyedState
    live: LiveDirectory
    output_directory: str
    prefix: str
    writers: tuple[TaskWriter, ...] = ()
    kept: frozenset[int] = frozenset({0})
    garbage: tuple[str, ...] = ()
    readers: Mapping[int, TaskReader] = field(default_factory=dict)
    """How tasks read the rows of each input port themselves."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Behind a shuffle: the partition's blobs."""
        spare_modules()
        partition, attempt = _task()
        shares, declined = [], None
        for batch in batches:
            for port, blob in zip(batch.column("port").to_pylist(), batch.column("blob"), strict=True):
                if port == DECLINED_PORT:
                    declined = json.loads(blob.as_py())
                else:
                    shares.append((port, _unblob(blob)))
        if declined is not None:
            yield _answer(partition, {DECLINED: declined})
            return
        result = self.apply(partition, attempt, self.task.logic.gather(shares))
        if result is not None:
            yield _answer(partition, result)

    def read_own(self, partition: int, anchors: Iterable[Any]) -> Iterable[tuple[int, dict[str, Any]]]:
        """Without a shuffle: every task reads everything and keeps what matters to it."""
        spare_modules()
        for _ in anchors:  # Spark does not use a worker again that leaves input unread
            pass
        logic = self.task.logic
        rows = {port: tables_of(reader, logic.needed(port)) for port, reader in self.readers.items()}
        try:
            arrived = logic.own_of(rows, partition, len(self.state.partitions))
        except Declined as declined:
            yield partition, {DECLINED: [declined.by, str(declined)]}
            return
        result = self.apply(partition, _task()[1], arrived)
        if result is not None:
            yield partition, result

    def done_here(self, rows: Mapping[int, pa.Table], attempt: int) -> dict[int, Here]:
        """In the driver: all partitions to which something matters, one after the other."""
        logic, done = self.task.logic, {}
        needed = {port: table.select(list(logic.needed(port))) for port, table in rows.items()}
        for partition in range(len(self.state.partitions)):
            arrived = logic.own(needed, partition, len(self.state.partitions))
            if arrived is not None:
                applied = self._applied(partition, self._place(partition, attempt), arrived)
                done[partition] = Here(applied, self._deliver(applied.outputs[0], partition, attempt))
        return done

    def apply(self, partition: int, attempt: int, arrived: Any) -> dict[str, Any] | None:
        """None if nothing arrived: the partition stays as it is."""
        for path in self.garbage:
            remove_quietly(path)
        if arrived is None:
            return None
        place = self._place(partition, attempt)
        applied = self._applied(partition, place, arrived)
        return {
            "segments": [_fields(segment) for segment in applied.segments],
            "meta": applied.meta,
            "held": self.task.logic.rows_of(applied.segments) if self.live.fixed is None else None,
            "counts": dict(applied.counts),
            "outputs": [
                {"rows": table.num_rows, "file": self._write_output(table, place.prefix, port)}
                for port, table in enumerate(applied.outputs)
            ],
            "written": self._deliver(applied.outputs[0], partition, attempt),
        }

    def _place(self, partition: int, attempt: int) -> Place:
        prefix = f"{self.task.operator[:40]}-p{partition}-{self.prefix}-t{attempt}"
        return Place(self.live.here(), aged(prefix, self.state.pins))

    def _applied(self, partition: int, place: Place, arrived: Any) -> Applied:
        segments = self.state.partitions[partition]
        self.live.check(segments)
        with naming_functions(f"operator {self.task.operator!r}"):
            return self.task.logic.apply(segments, self.state.meta, arrived, place)

    def _deliver(self, output: pa.Table, partition: int, attempt: int) -> list[Any]:
        if not self.writers:
            return []
        plain = output.select([name for name in output.column_names if name not in POSITION_COLUMNS])
        return [write(plain, partition, attempt) for write in self.writers]

    def _write_output(self, output: pa.Table, prefix: str, port: int) -> str | None:
        if port not in self.kept or not output.num_rows:
            return None
        directory = Path(self.output_directory)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{prefix}-o{port}.parquet"
        pq.write_table(output, path, compression="none", **encodings(output))
        return str(path)


@dataclass(frozen=True)
class DeliverStage:
    """Without a plan: every task reads all rows and gives its share of them to a sink's writer. Answers how many, and what that says."""

    reader: TaskReader
    columns: tuple[str, ...]
    partitions: int
    writer: TaskWriter

    def __call__(self, partition: int, anchors: Iterable[Any]) -> Iterable[Any]:
        spare_modules()
        for _ in anchors:  # Spark does not use a worker again that leaves input unread
            pass
        rows = self.reader(self.columns)
        begin, end = (rows.num_rows * each // self.partitions for each in (partition, partition + 1))
        yield end - begin, self.writer(rows.slice(begin, end - begin), partition, _task()[1])


@dataclass(frozen=True)
class LoadStage:
    """Copies a partition's restored segments to the executor that anchors it."""

    versions: tuple[Segments, ...]
    live: LiveDirectory

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        partition, attempt = _task()
        here = self.live.here()
        brought = [self._bring(segment, here, attempt) for segment in self.versions[partition]]
        yield _answer(partition, [_fields(segment) for segment in brought])

    def _bring(self, segment: Segment, here: Path, attempt: int) -> Segment:
        target = here / os.path.basename(segment.path)
        staged = target.with_name(f".{target.name}.{attempt}")
        shutil.copyfile(segment.path, staged)
        verify_segment(staged, crc=segment.crc, size=segment.bytes)
        os.rename(staged, target)
        return Segment(segment.name, str(target), segment.rows, segment.bytes, segment.crc)


Writer = Callable[[str, Segment], SegmentRef]


@dataclass(frozen=True)
class StoreWriter:
    """Stores a segment without opening the store: tasks on executors use it."""

    put: SegmentWriter

    def __call__(self, entry: str, segment: Segment) -> SegmentRef:
        return self.put(entry, segment.name, Path(segment.path), segment.crc)


@dataclass(frozen=True)
class PresenceStage:
    """Tells whether the segments of the partition it runs in are there."""

    partitions: tuple[Segments, ...]
    live: LiveDirectory

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        partition, _ = _task()
        try:
            self.live.check(self.partitions[partition])
        except StepFailed:
            yield _answer(partition, False)
        else:
            yield _answer(partition, True)


@dataclass(frozen=True)
class UploadStage:
    """Stores the new segments of the partition it runs in."""

    entry: str
    segments: Sequence[tuple[int, Segment]]
    write: Writer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        partition, _ = _task()
        mine = [segment for number, segment in self.segments if number == partition]
        stored = {segment.name: self.write(self.entry, segment) for segment in mine}
        yield _answer(partition, {name: [r.entry, r.key, r.size, r.crc] for name, r in stored.items()})


@dataclass(frozen=True)
class ChangesStage:
    """Joins and stores what steps changed in the partition it runs in."""

    rows: Aggregation
    entry: str
    changes: Mapping[int, Segments]
    write: Writer
    live: LiveDirectory
    as_base: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        partition, _ = _task()
        mine = self.changes.get(partition, ())
        refs = stored_changes(self.rows, mine, self.live.here(), self._put, self.as_base) if mine else []
        yield _answer(partition, [[r.entry, r.key, r.size, r.crc] for r in refs])

    def _put(self, segment: Segment) -> SegmentRef:
        return self.write(self.entry, segment)


def store_writer(store: Store) -> Writer:
    """How executors write into this store."""
    return StoreWriter(store.segment_writer())


def _blob(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _unblob(blob: pa.BinaryScalar) -> pa.Table:
    return pa.ipc.open_stream(blob.as_buffer()).read_all()


def _task() -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()


def _fields(segment: Segment) -> list[Any]:
    return [segment.name, segment.path, segment.rows, segment.bytes, segment.crc]


def _answer(partition: int, result: Any) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([partition], pa.int32()), pa.array([json.dumps(result)])], schema=RESULT_SCHEMA
    )
