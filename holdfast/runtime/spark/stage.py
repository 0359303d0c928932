"""What Spark runs over each partition of a keyed operator: small picklable callables over record batches."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from holdfast.durable import checksum_file, remove_quietly
from holdfast.errors import StepFailed
from holdfast.runtime.engine import KeyedTask
from holdfast.runtime.executor.keyed import Segments, apply_partition
from holdfast.state.segment import Segment
from holdfast.store.base import SegmentRef, Store
from holdfast.store.files import FileStore
from holdfast.store.segments import link_segment

RESULT = "partition int, result string"
RESULT_SCHEMA = pa.schema([("partition", pa.int32()), ("result", pa.string())])
"""What every stage yields: one row per partition, its answer as JSON."""


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
class KeyedStage:
    """Applies a batch to one partition; yields one row: the new version and where the output is."""

    task: KeyedTask
    versions: tuple[Segments, ...]
    live: LiveDirectory
    output_directory: str
    prefix: str
    garbage: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = [batch for batch in batches if batch.num_rows]
        for path in self.garbage:
            remove_quietly(path)
        rows = pa.Table.from_batches(received) if received else None
        if rows is None or not rows.num_rows:
            return
        partition, attempt = _task()
        self.live.check(self.versions[partition])
        prefix = f"{self.task.operator[:40]}-p{partition}-{self.prefix}-t{attempt}"
        segments, output = apply_partition(
            self.task, self.versions[partition], rows, self.live.here(), prefix
        )
        result = {
            "segments": [_fields(segment) for segment in segments],
            "output": self._write_output(output, prefix),
            "rows": output.num_rows,
        }
        yield _answer(partition, result)

    def _write_output(self, output: pa.Table, prefix: str) -> str | None:
        if not output.num_rows:
            return None
        directory = Path(self.output_directory)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{prefix}.parquet"
        pq.write_table(output, path, compression="none")
        return str(path)


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
        crc, _ = checksum_file(staged)
        if crc != segment.crc:
            raise StepFailed(f"the segment {segment.name} arrived damaged on an executor.")
        os.rename(staged, target)
        return Segment(segment.name, str(target), segment.rows, segment.bytes, segment.crc)


Writer = Callable[[str, Segment], SegmentRef]


@dataclass(frozen=True)
class FileWriter:
    """Stores a segment in a file store without opening the store: tasks on executors use it."""

    root: str
    token: int

    def __call__(self, entry: str, segment: Segment) -> SegmentRef:
        return link_segment(self.root, self.token, entry, segment.name, Path(segment.path), segment.crc)


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


def store_writer(store: Store) -> Writer:
    """How executors write into this store."""
    assert isinstance(store, FileStore)
    return FileWriter(str(store.root), int(store.token))


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
