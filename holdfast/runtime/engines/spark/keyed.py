"""Keyed steps on Spark: one job per step.

Rows that tasks can read by themselves take the short way (few partitions): each task reads the columns it needs and
keeps the rows it owns. Others go through a shuffle, as one Arrow blob per mapping task and partition, summed up before
where the operator allows it.

The stage has side effects (it writes segments under names that carry the task attempt), so exactly one action runs
it, and its only answer is a small row per partition; the driver records which attempt won. What the operator emits is
written by the same task: for sinks that let tasks write, straight into their staging; for others as a Parquet file
that is read back as a new frame, so that no lineage leads through the stage again.

In a cluster a partition must meet its live segments again in the next step: see `anchors.py`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.durable import remove_quietly, tells_of_no_space
from holdfast.errors import NoSpaceError
from holdfast.language.connectors import Sink, StepId, TaskReader, TaskWriter
from holdfast.language.tables import parts_of
from holdfast.operators.shared.logic import Segments
from holdfast.runtime.engines import engine
from holdfast.runtime.engines.spark.anchors import Anchors, by_number
from holdfast.runtime.engines.spark.readable import BatchReader, ReadableRows, as_frame, may_decline
from holdfast.runtime.engines.spark.session import FILE_TIMES, MICROSECONDS
from holdfast.runtime.engines.spark.small_steps import SmallSteps
from holdfast.runtime.engines.spark.stage import (
    BLOB,
    DECLINED,
    RESULT,
    ChangesStage,
    DeliverStage,
    KeyedStage,
    LiveDirectory,
    LoadStage,
    PresenceStage,
    ReadSplitStage,
    SplitStage,
    UploadStage,
    store_writer,
)
from holdfast.runtime.engines.spark.stateless import spark_schema
from holdfast.runtime.links.batch import Batch, batch_of
from holdfast.runtime.runs.keyed_load import load_segments
from holdfast.state.keyed.segment import Segment
from holdfast.store.base import SegmentRef, Store

PortFrames = Mapping[int, DataFrame | ReadableRows]
"""The rows of a step by input port."""

UNSHUFFLED_PARTITIONS = 4
UNSHUFFLED_BYTES = 256 << 20
"""Up to here it costs less if every task reads all rows than if a shuffle brings each task its own."""
DIVIDED_BYTES, PARTS_PER_TASK = 8 << 20, 2
"""From here on each row is read by one task, where rows can be divided: two stages cost some tens of milliseconds more than one."""


class KeyedJobs:
    """Runs the keyed steps of one engine. `step` is called by element threads, `put_segments` by their uploads."""

    def __init__(
        self,
        session: SparkSession,
        live: Path,
        partitions: int,
        from_table: Callable[[pa.Table], ReadableRows],
        give_up: Callable[[str, str], None] = lambda operator, why: None,
    ) -> None:
        """`give_up(operator, why)` hears that tasks cannot do the work of a stateless operator after all."""
        self._give_up = give_up
        self._session = session
        self._from_table = from_table
        self._live = live
        self._partitions = partitions
        self.in_cluster = not str(session.sparkContext.master).startswith("local[")
        self._anchors = Anchors(session, partitions) if self.in_cluster else None
        self._local_places: RDD[Any] | None = None
        self._garbage: list[str] = []
        self.small = SmallSteps(not self.in_cluster, session.conf.get(FILE_TIMES) == MICROSECONDS)
        self._lock = threading.Lock()

    def batch_rows(self, batches: Sequence[Batch], schema: pa.Schema) -> ReadableRows:
        """The rows of batches, as tasks or as Spark read them."""
        files = tuple(file for batch in batches for file in batch.row_files)

        def make() -> DataFrame:
            return self._session.read.schema(spark_schema(schema)).parquet(*files)

        only = batches[0] if len(batches) == 1 else None
        return ReadableRows(
            lambda: BatchReader(files, schema),
            sum(batch.bytes for batch in batches),
            make,
            only,
            schema,
            None if any(batch.skip for batch in batches) else sum(batch.rows for batch in batches),
        )

    def step(
        self,
        task: engine.KeyedTask,
        state: engine.KeyedState,
        rows: PortFrames,
        name: engine.StepName,
        delivery: engine.Delivery,
    ) -> engine.KeyedOutput:
        with self._lock:
            garbage, self._garbage = self._garbage, []
        writers = {sink: writer for sink in delivery.sinks if (writer := sink.task_writer(name.id))}
        stage = KeyedStage(
            task=task,
            state=state,
            live=LiveDirectory(None if self.in_cluster else str(self._live), self._live.name),
            output_directory=str(self._live / "batches"),
            prefix=f"a{name.attempt}-s{name.step}",
            writers=tuple(writers.values()),
            kept=delivery.kept if len(writers) == len(delivery.sinks) else delivery.kept | {0},
            garbage=tuple(garbage),
        )
        begun, tables = time.perf_counter(), self.small.tables(task, rows, name.step)
        try:
            if tables is not None:
                output = self._done_here(stage, tables, name, writers)
                self.small.measured(task.operator, tables.values(), begun)
                return output
            results = self._run(stage, rows)
            self.small.measured(task.operator, None, begun)
        except Exception as error:
            if tells_of_no_space(error):
                raise NoSpaceError(
                    f"no space left in a task of {task.operator!r}.", cure="Free some space."
                ) from error
            raise
        for number, sink in enumerate(writers):
            sink.adopt(name.id, [result["written"][number] for result in results.values()])
        return self._collected(task, state, results, tuple(writers))

    def _done_here(
        self,
        stage: KeyedStage,
        tables: Mapping[int, pa.Table],
        name: engine.StepName,
        writers: Mapping[Sink, TaskWriter],
    ) -> engine.KeyedOutput:
        """The step, in the driver."""
        done = stage.done_here(tables, self.small.next_attempt())
        for number, sink in enumerate(writers):
            sink.adopt(name.id, [here.written[number] for here in done.values()])
        versions, meta = list(stage.state.partitions), stage.state.meta
        for partition, here in done.items():
            versions[partition], meta = here.applied.segments, here.applied.meta
        counts = stage.state.counting(here.applied.counts for here in done.values())
        ports = enumerate(stage.task.logic.outputs)
        made = {
            port: pa.concat_tables(
                [schema.empty_table(), *(h.applied.outputs[port].cast(schema) for h in done.values())]
            )
            for port, schema in ports
        }
        return engine.KeyedOutput(
            engine.KeyedState(tuple(versions), meta, counts, stage.state.pins),
            {p: self._from_table(made[p]) for p in sorted(stage.kept) if p in made and made[p].num_rows},
            made[0].num_rows,
            (),
            tuple(writers),
        )

    def deliver(self, sink: Sink, rows: ReadableRows, step: StepId) -> int | None:
        """Let tasks read rows and write them into a sink. How many; None: they cannot, and nothing was done."""
        if (few := self.small.deliver(sink, rows, step)) is not None:
            return few
        columns = sink.task_columns()
        readers = {} if columns is None or may_decline(rows.reader) else self._readers({0: rows})
        if columns is None or not readers or (writer := sink.task_writer(step)) is None:
            return None
        stage = DeliverStage(readers[0], tuple(columns), self._partitions, writer)
        shares: list[tuple[int, Any]] = self._places().mapPartitionsWithIndex(stage).collect()
        sink.adopt(step, [written for _, written in shares])
        return sum(rows for rows, _ in shares)

    def _run(self, stage: KeyedStage, rows: PortFrames) -> dict[int, dict[str, Any]]:
        """One job; what each partition answered. A second one, if tasks came upon rows that they cannot read."""
        groups, readers = self._groups(rows), self._readers(rows)
        if groups:
            answers = self._answered(stage, self._read_in_parts(stage.task, groups))
        elif readers:
            reading = replace(stage, readers=readers)
            answers = dict(self._places().mapPartitionsWithIndex(reading.read_own).collect())
        else:
            answers = {}
        declined = [answer[DECLINED] for answer in answers.values() if DECLINED in answer]
        if (groups or readers) and not declined:
            return answers
        if declined:
            self._give_up(*declined[0])
            self._remove_written(answers, stage.state)
        return self._answered(
            stage, self._split(stage.task, {p: as_frame(frame) for p, frame in rows.items()})
        )

    def _answered(self, stage: KeyedStage, blobs: DataFrame) -> dict[int, dict[str, Any]]:
        """What the partitions answer that get these blobs."""
        if self._anchors is None:
            shuffled = by_number(blobs, self._partitions, "partition")
            answers = shuffled.mapInArrow(stage, RESULT).collect()
        else:
            shuffled = self._anchors.partitioned(blobs, F.col("partition"))
            answers = self._anchors.run_beside(shuffled, stage).collect()
        return {row[0]: json.loads(row[1]) for row in answers}

    def _remove_written(self, answers: Mapping[int, dict[str, Any]], state: engine.KeyedState) -> None:
        """The step is done again: nobody needs the segments and files that some of its tasks wrote."""
        known = {segment.name for segments in state.partitions for segment in segments}
        written = [answer for answer in answers.values() if DECLINED not in answer]
        for segment in (Segment(*fields) for answer in written for fields in answer["segments"]):
            if segment.name not in known:
                self.remove_later(segment)
        for file in (output["file"] for answer in written for output in answer["outputs"] if output["file"]):
            remove_quietly(file)

    def _readers(self, rows: PortFrames) -> dict[int, TaskReader]:
        """How tasks read all ports' rows by themselves; none if they should not, or cannot."""
        readable = {port: frame for port, frame in rows.items() if isinstance(frame, ReadableRows)}
        bytes = sum(frame.bytes for frame in readable.values())
        if self._partitions > UNSHUFFLED_PARTITIONS or bytes > UNSHUFFLED_BYTES or len(readable) < len(rows):
            return {}
        readers = {port: frame.reader for port, frame in readable.items()}
        found = {port: reader for port, reader in readers.items() if reader is not None}
        return found if len(found) == len(rows) else {}

    def _groups(self, rows: PortFrames) -> tuple[tuple[tuple[int, TaskReader], ...], ...]:
        """Who reads what, if each row should be read by one task alone: many rows, which can be divided. None: empty."""
        readable = {port: frame for port, frame in rows.items() if isinstance(frame, ReadableRows)}
        if len(readable) < len(rows) or sum(frame.bytes for frame in readable.values()) < DIVIDED_BYTES:
            return ()
        readers = {port: frame.reader for port, frame in readable.items()}
        parts = [(port, part) for port, reader in readers.items() if reader for part in parts_of(reader)]
        if not all(readers.values()) or len(parts) < PARTS_PER_TASK * self._partitions:
            return ()
        return tuple(tuple(parts[first :: self._partitions]) for first in range(self._partitions))

    def _read_in_parts(
        self, task: engine.KeyedTask, groups: tuple[tuple[tuple[int, TaskReader], ...], ...]
    ) -> DataFrame:
        """Blobs of the rows that tasks read."""
        stage = ReadSplitStage(task.logic, groups, self._partitions)
        return self._session.range(0, len(groups), 1, len(groups)).mapInArrow(stage, BLOB)

    def _places(self) -> RDD[Any]:
        """One task per partition; in a cluster where its anchor is."""
        if self._anchors is not None:
            return self._anchors.places()
        if self._local_places is None:
            self._local_places = self._session.sparkContext.parallelize(
                range(self._partitions), self._partitions
            )
        return self._local_places

    def load(
        self,
        task: engine.KeyedTask,
        segments: list[list[SegmentRef]],
        store: Store | None,
        spare: engine.Spare | None,
    ) -> engine.Loaded:
        """Verified live segments; in a cluster each partition's are copied to the executor that anchors it."""
        loaded = load_segments(task, segments, store, self._live / engine.STATE, self._partitions, spare)
        held = tuple(map(task.logic.rows_of, loaded.partitions)) if self.in_cluster else ()
        return replace(loaded, partitions=self.bring(loaded.partitions), held=held)

    def bring(self, partitions: tuple[Segments, ...]) -> tuple[Segments, ...]:
        """Segments that the driver has; in a cluster each partition's are copied to the executor that anchors it."""
        if self._anchors is None:
            return partitions
        self._anchors.renew()
        if not any(partitions):
            return partitions
        stage = LoadStage(partitions, LiveDirectory(None, self._live.name))
        rows = self._anchors.frame().mapInArrow(stage, RESULT).collect()
        versions = list(partitions)
        for partition, result in rows:
            versions[partition] = tuple(Segment(*fields) for fields in json.loads(result))
        return tuple(versions)

    def put_segments(
        self, entry: str, segments: Sequence[tuple[int, Segment]], store: Store
    ) -> list[SegmentRef]:
        """Upload by tasks placed where the segments lie."""
        assert self._anchors is not None
        if not segments:
            return []
        stage = UploadStage(entry, tuple(segments), store_writer(store))
        rows = self._anchors.frame().mapInArrow(stage, RESULT).collect()
        refs = {name: SegmentRef(*fields) for row in rows for name, fields in json.loads(row[1]).items()}
        return [refs[segment.name] for _, segment in segments]

    def put_joined(
        self,
        task: engine.KeyedTask,
        entry: str,
        changes: Sequence[tuple[int, Segments]],
        store: Store,
        as_base: bool,
    ) -> list[list[SegmentRef]]:
        """Join and upload changes by tasks placed where they lie."""
        assert self._anchors is not None
        assert task.logic.chained is not None
        if not changes:
            return []
        live = LiveDirectory(None, self._live.name)
        stage = ChangesStage(task.logic.chained, entry, dict(changes), store_writer(store), live, as_base)
        rows = self._anchors.frame().mapInArrow(stage, RESULT).collect()
        refs = {
            partition: [SegmentRef(*fields) for fields in json.loads(answer)] for partition, answer in rows
        }
        return [refs[number] for number, _ in changes]

    def has_live(self, state: engine.KeyedState) -> bool:
        """True if every partition's segments are where its next task will look for them."""
        if self._anchors is None:
            return all(Path(s.path).exists() for partition in state.partitions for s in partition)
        stage = PresenceStage(state.partitions, LiveDirectory(None, self._live.name))
        return all(json.loads(row[1]) for row in self._anchors.frame().mapInArrow(stage, RESULT).collect())

    def remove_later(self, segment: Segment) -> None:
        """Live files of executors are removed by the tasks of the next step."""
        if not self.in_cluster:
            remove_quietly(segment.path)
            return
        with self._lock:
            self._garbage.append(segment.path)

    def release(self) -> None:
        if self._anchors is not None:
            self._anchors.release()

    def _split(self, task: engine.KeyedTask, frames: Mapping[int, DataFrame]) -> DataFrame:
        """Blobs of the rows of frames."""
        parts = []
        for port, frame in frames.items():
            needed = [F.col("`" + column.replace("`", "``") + "`") for column in task.logic.needed(port)]
            split = SplitStage(task.logic, port, self._partitions)
            parts.append(frame.select(*needed).mapInArrow(split, BLOB))
        return reduce(DataFrame.unionAll, parts)

    def _collected(
        self,
        task: engine.KeyedTask,
        state: engine.KeyedState,
        results: dict[int, dict[str, Any]],
        delivered: tuple[Sink, ...],
    ) -> engine.KeyedOutput:
        versions, meta = list(state.partitions), state.meta
        held = list(state.held or [None] * len(versions))
        for partition, result in results.items():
            versions[partition] = tuple(Segment(*fields) for fields in result["segments"])
            meta, held[partition] = result["meta"], result["held"]
        batches = {
            port: self._batch([result["outputs"][port] for result in results.values()])
            for port in range(len(task.logic.outputs))
        }
        made = {port: batch for port, batch in batches.items() if batch is not None}
        return engine.KeyedOutput(
            engine.KeyedState(
                tuple(versions),
                meta,
                state.counting(r["counts"] for r in results.values()),
                state.pins,
                tuple(held) if self.in_cluster else (),
            ),
            {port: self.batch_rows([batch], task.logic.outputs[port]) for port, batch in made.items()},
            sum(result["outputs"][0]["rows"] for result in results.values()),
            tuple(batch.hold for batch in made.values()),
            delivered,
        )

    def _batch(self, outputs: Sequence[dict[str, Any]]) -> Batch | None:
        """The files the partitions wrote for one port."""
        files = sorted(Path(output["file"]) for output in outputs if output["file"])
        return batch_of(files, sum(output["rows"] for output in outputs)) if files else None
