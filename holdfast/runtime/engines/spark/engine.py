"""The Spark engine: frames are DataFrames, a step is usually one job. With `keyed.py` the only place that runs jobs."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JError
from pyspark import InheritableThread, StorageLevel
from pyspark.sql import SparkSession

from holdfast.compiler.analyse import Analyser
from holdfast.ids import ElementName, OperatorName
from holdfast.language.connectors import (
    POSITION_FIELDS,
    TIMES,
    Declined,
    RowCheck,
    Sink,
    Slice,
    Source,
    Stamp,
    StepId,
)
from holdfast.language.graph import Operator
from holdfast.language.operators.stateless import (
    DropSpec,
    FilterSpec,
    RenameSpec,
    SelectSpec,
    SplitSpec,
    WithColumnsSpec,
)
from holdfast.operators.kinds import stateless_kind
from holdfast.operators.shared.logic import Segments
from holdfast.operators.shared.timed import rising
from holdfast.runtime.engines import engine
from holdfast.runtime.engines.engine import Engine, Frame
from holdfast.runtime.engines.spark.expressions.translated import Translations
from holdfast.runtime.engines.spark.keyed import KeyedJobs
from holdfast.runtime.engines.spark.readable import (
    BatchReader,
    ReadableRows,
    RowCounts,
    TableReader,
    as_frame,
    collected,
    spark_times,
    timed,
    united,
)
from holdfast.runtime.engines.spark.session import TimesAsMicroseconds, remember_classes
from holdfast.runtime.engines.spark.small_steps import small_table
from holdfast.runtime.engines.spark.stage import RisingStage
from holdfast.runtime.engines.spark.stateless import (
    FRAMES,
    SparkAnalyser,
    checked_rows,
    dealt_out,
    spark_schema,
    without_positions,
)
from holdfast.runtime.engines.spark.workers import check_workers
from holdfast.runtime.links.batch import Batch, batch_of
from holdfast.runtime.live_directory import LiveDirectoryLock
from holdfast.sources.schemas import spark_frame
from holdfast.state.keyed.segment import Segment
from holdfast.store.base import SegmentRef, Store

BACKGROUND_POOL = "holdfast-background"

SMALL_BYTES = 1 << 16
"""Up to here a table of the driver travels with the tasks that read it."""
NEAR_BYTES = 16 << 20
"""Up to here the driver reads what only operators in the driver are interested in."""

WITHOUT_SPARK = (DropSpec, RenameSpec)
"""Operators that the driver applies to a few rows by itself."""
EXPRESSIONS = (FilterSpec, SelectSpec, SplitSpec, WithColumnsSpec)
"""Those that Catalyst applies to them in a small job without workers of Python's, if a step in the driver follows."""

HAS_UNIX_SOCKETS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
"""Whether Spark can talk with its Python workers by them."""

logger = logging.getLogger("holdfast")


def _same(frame: Frame) -> Frame:
    return frame


_hinted: set[str] = set()
"""Applications that were told what would help."""


class SparkEngine(Engine):
    """Runs steps on a session. `owned`: the session was made for this run and ends with it."""

    def __init__(self, session: SparkSession, *, owned: bool = False, partitions: int | None = None) -> None:
        self.session = session
        self._owned = owned
        self._context = session.sparkContext
        self._live_lock = LiveDirectoryLock()
        self.live = self._live_lock.path
        self.partitions = partitions or max(1, self._context.defaultParallelism)
        self._background = ThreadPoolExecutor(self.partitions, thread_name_prefix="holdfast-background")
        self._translations = Translations(session)
        self._read_by_tasks: dict[str, Source] = {}
        """By what they call themselves, which is how a reader names its source."""
        self._times = None if owned else TimesAsMicroseconds(session)
        self._counts = RowCounts()
        self._keyed = KeyedJobs(session, self.live, self.partitions, self._had, self._give_up)
        remember_classes(session)
        self._hint_once()

    def check_workers(self) -> None:
        check_workers(self._context)

    def analyser(self) -> Analyser:
        return SparkAnalyser(self.session)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = InheritableThread(target=target, session=self.session)
        thread.name = name
        thread.daemon = True
        return thread

    def begin_step(self, name: engine.StepName, topology: str) -> None:
        self._context.setJobGroup(self._group(name.element), name.describe(topology))
        self._context.setLocalProperty("spark.scheduler.pool", name.element)

    def cancel(self, element: ElementName) -> None:
        try:
            self._context.cancelJobGroup(self._group(element))
        except (Py4JError, OSError):
            logger.debug("nothing to cancel for %s: the JVM is gone", element)

    def is_alive(self) -> bool:
        try:
            return not self._context._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):
            return False

    def read(self, source: Source, piece: Slice, stamp: Stamp | None) -> Frame:
        if self._keyed.small.enabled and (few := source.read_small(piece, stamp)) is not None:
            return self.from_table(few)
        if piece.bytes is None:
            return source.read_spark(self.session, piece, stamp)
        self._read_by_tasks[source.describe()] = source
        return ReadableRows(
            lambda: source.task_reader(piece, stamp),
            piece.bytes,
            lambda: source.read_spark(self.session, piece, stamp),
            columns=source.schema() if stamp is None else pa.schema([*source.schema(), *POSITION_FIELDS]),
        )

    def _give_up(self, by: str, why: str) -> None:
        """Tasks came upon rows that are for Spark: of an operator that is translated, or of a source that is read by them."""
        if by in self._read_by_tasks:
            logger.info("%s: Spark's reader takes them from now on (%s)", by, why)
            self._read_by_tasks[by].decline_tasks(why)
        else:
            self._translations.give_up(by, why)

    def read_malformed(self, source: Source, piece: Slice, stamp: Stamp | None) -> Frame:
        return source.read_malformed_spark(self.session, piece, stamp)

    def from_batches(self, batches: Sequence[Batch], schema: pa.Schema) -> Frame:
        return self._keyed.batch_rows(batches, schema)

    def from_table(self, table: pa.Table) -> Frame:
        return self._made(table) if table.nbytes > SMALL_BYTES else self._had(table)

    def _made(self, table: pa.Table) -> Frame:
        # With its own schema: by default a timestamp without zone would become one with the session's zone.
        return spark_frame(self.session, table)

    def _had(self, table: pa.Table) -> ReadableRows:
        """A table of the driver, which becomes a frame of Spark's only if somebody asks for one."""
        return ReadableRows(
            lambda: TableReader(table),
            table.nbytes,
            lambda: self._made(table),
            columns=table.schema,
            rows=table.num_rows,
        )

    def empty(self, schema: pa.Schema) -> Frame:
        return self.session.createDataFrame([], spark_schema(schema))

    def union(self, frames: Sequence[Frame]) -> Frame:
        def make() -> Frame:
            return reduce(lambda a, b: a.unionByName(b), [as_frame(frame) for frame in frames])

        readable = [frame for frame in frames if isinstance(frame, ReadableRows)]
        return united(readable, make) if len(readable) == len(frames) else make()

    def stateless(self, operator: Operator, inputs: Sequence[Frame], stamped: bool) -> list[Frame]:
        kind, rows = stateless_kind(operator), inputs[0]
        may_be_here = self._keyed.small.enabled
        if (
            may_be_here
            and isinstance(operator.spec, WITHOUT_SPARK)
            and (few := small_table(rows)) is not None
        ):
            return [self.from_table(table) for table in kind.tables(operator, few)]
        if isinstance(rows, ReadableRows):
            changed = self._translations.changed(operator, rows, stamped)
            if changed is not None:
                return changed
        frames = kind.frames(operator, rows, stamped, FRAMES)
        if may_be_here and isinstance(operator.spec, EXPRESSIONS) and (few := small_table(rows)) is not None:
            return [ReadableRows(collected(frame), few.nbytes, partial(_same, frame)) for frame in frames]
        return frames

    def collect_times(self, frame: Frame) -> pa.Table:
        if isinstance(frame, ReadableRows) and isinstance(frame.reader, TableReader):
            return rising(frame.reader.table)
        found = as_frame(frame).mapInArrow(RisingStage(), spark_schema(TIMES)).toArrow()
        return rising(found.cast(TIMES))

    def times(self, frame: Frame, on: str) -> Frame:
        if isinstance(frame, ReadableRows):
            return timed(frame, on)
        return spark_times(frame, on)

    def strip(self, frame: Frame) -> Frame:
        return (
            frame.mapped(without_positions) if isinstance(frame, ReadableRows) else without_positions(frame)
        )

    def share(self, frame: Frame) -> Frame:
        if isinstance(frame, ReadableRows):
            # Evaluated once: an expression may give something else the next time.
            return self._had(frame.reader.table) if isinstance(frame.reader, TableReader) else frame.shared()
        return frame.persist(StorageLevel.MEMORY_AND_DISK)

    def unshare(self, frame: Frame) -> None:
        if isinstance(frame, ReadableRows):
            frame.unshare()
        else:
            frame.unpersist()

    def materialise(
        self, frame: Frame, name: engine.StepName, stream: str, near: bool = False
    ) -> Batch | None:
        if isinstance(frame, ReadableRows) and frame.batch is not None:
            frame.batch.hold.take()
            return frame.batch
        label = f"{stream}-a{name.attempt}-s{name.step}"
        if self._keyed.small.enabled and isinstance(frame, ReadableRows):
            rows = small_table(frame)
            if rows is None and near:
                rows = self._read_here(frame)
            if rows is not None:
                return self._written(rows, label)
        directory = self.live / "batches" / label
        as_frame(frame).write.option("compression", "none").parquet(str(directory))
        files = sorted(directory.glob("*.parquet"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        if rows:
            return batch_of(files, rows, directory)
        shutil.rmtree(directory, ignore_errors=True)
        return None

    def _read_here(self, rows: ReadableRows) -> pa.Table | None:
        """Rows that the driver is about to read anyway, without the job that would bring them to it. None: they are for Spark."""
        if rows.bytes > NEAR_BYTES or rows.columns is None or rows.reader is None:
            return None
        try:
            return rows.reader(rows.columns.names)
        except Declined as declined:
            self._give_up(declined.by, str(declined))
            return None

    def _written(self, table: pa.Table, label: str) -> Batch | None:
        """Rows of the driver as a batch, without a job."""
        if not table.num_rows:
            return None
        path = self.live / "batches" / f"{label}-t{self._keyed.small.next_attempt()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, compression="none")
        return batch_of([path], table.num_rows)

    def checked(self, frame: Frame, check: RowCheck, sink: OperatorName) -> tuple[Frame, Frame, list[Frame]]:
        rows = self.share(checked_rows(as_frame(frame), check, sink))
        return *dealt_out(rows, sink), [rows]

    def write(self, sink: Sink, frame: Frame, step: StepId) -> int | None:
        if isinstance(frame, ReadableRows) and (rows := self._keyed.deliver(sink, frame, step)) is not None:
            return rows
        if sink.keeps_notes and isinstance(frame, ReadableRows) and isinstance(frame.reader, BatchReader):
            # The driver writes them, and can read what a keyed step left: a job would bring it the same rows.
            return sink.write_arrow(frame.reader(frame.reader.schema.names), step)
        if not sink.let_spark_count:
            return sink.write_spark(as_frame(frame), step)
        return self._counts.write(sink, frame, step)

    def keyed_step(
        self,
        task: engine.KeyedTask,
        state: engine.KeyedState,
        frames: Mapping[int, Frame],
        name: engine.StepName,
        delivery: engine.Delivery = engine.KEEP,
    ) -> engine.KeyedOutput:
        return self._keyed.step(task, state, frames, name, delivery)

    def load_keyed(
        self,
        task: engine.KeyedTask,
        segments: list[list[SegmentRef]],
        store: Store | None,
        spare: engine.Spare | None = None,
    ) -> engine.Loaded:
        return self._keyed.load(task, segments, store, spare)

    def bring(self, segments: tuple[Segments, ...]) -> tuple[Segments, ...]:
        return self._keyed.bring(segments)

    def collect(self, frame: Frame, schema: pa.Schema) -> pa.Table:
        assert isinstance(frame, ReadableRows)
        assert frame.reader is not None
        return frame.reader(schema.names)

    def put_segments(
        self, entry: str, segments: Sequence[tuple[int, Segment]], store: Store
    ) -> list[SegmentRef]:
        if not self._keyed.in_cluster or not store.executors_may_write:
            return super().put_segments(entry, segments, store)
        self._context.setLocalProperty("spark.scheduler.pool", BACKGROUND_POOL)
        return self._keyed.put_segments(entry, segments, store)

    def put_joined(
        self,
        task: engine.KeyedTask,
        entry: str,
        changes: Sequence[tuple[int, Segments]],
        store: Store,
        as_base: bool = False,
    ) -> list[list[SegmentRef]]:
        if not self._keyed.in_cluster or not store.executors_may_write:
            return super().put_joined(task, entry, changes, store, as_base)
        self._context.setLocalProperty("spark.scheduler.pool", BACKGROUND_POOL)
        return self._keyed.put_joined(task, entry, changes, store, as_base)

    def has_live(self, state: engine.KeyedState) -> bool:
        return self._keyed.has_live(state)

    def remove_leftovers(
        self, operator: OperatorName, name: engine.StepName, needed: Collection[str]
    ) -> None:
        if not self._keyed.in_cluster:  # else they go with the executor
            super().remove_leftovers(operator, name, needed)

    def remove_live(self, segment: Segment) -> None:
        self._keyed.remove_later(segment)

    def run_tasks(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if not self._keyed.in_cluster:
            # The files lie here, and a task that waits for the disk would hold one of the few cores for nothing.
            return list(self._background.map(fn, items))
        if not items:
            return []
        self._context.setLocalProperty("spark.scheduler.pool", BACKGROUND_POOL)
        return self._context.parallelize(items, min(len(items), self.partitions)).map(fn).collect()

    def stop(self) -> None:
        self._keyed.release()
        self._background.shutdown(wait=False, cancel_futures=True)
        self._live_lock.release()
        if self._times is not None:
            self._times.release()
        if self._owned:
            self.session.stop()

    def _group(self, element: ElementName) -> str:
        return f"holdfast/{id(self)}/{element}"

    def _hint_once(self) -> None:
        """Socket settings exist only at session start: work with what is there and say what would help."""
        if self._context.applicationId in _hinted:
            return
        _hinted.add(self._context.applicationId)
        if not HAS_UNIX_SOCKETS:
            return
        if self._context.getConf().get("spark.python.unix.domain.socket.enabled", "false") != "true":
            logger.info(
                "hint: steps with Python state start faster if the session is built with "
                "spark.python.unix.domain.socket.enabled=true"
            )
