"""Keyed steps on Spark: one shuffle and one Arrow stage per step.

The stage has side effects (it writes segments under names that carry the task attempt), so exactly one action runs
it, and its only output is a small row per partition; the driver records which attempt won. What the operator emits is
written by the same task as a Parquet file and read back as a new frame: no lineage leads through the stage again.

In a cluster a partition must meet its live segments again in the next step: see `anchors.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.durable import remove_quietly
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import KEY_GROUPS
from holdfast.runtime.engine import KeyedOutput, KeyedState, KeyedTask, StepName
from holdfast.runtime.executor.keyed import columns_of, output_schema_of
from holdfast.runtime.keyed_load import load_segments
from holdfast.runtime.spark.anchors import Anchors
from holdfast.runtime.spark.stage import (
    RESULT,
    KeyedStage,
    LiveDirectory,
    LoadStage,
    UploadStage,
    store_writer,
)
from holdfast.runtime.spark.stateless import spark_schema
from holdfast.state.hashing import spark_hash_expression
from holdfast.state.segment import Segment
from holdfast.store.base import SegmentRef, Store


class KeyedJobs:
    """Runs the keyed steps of one engine. `step` is called by element threads, `put_segments` by their uploads."""

    def __init__(self, session: SparkSession, live: Path, partitions: int) -> None:
        self._session = session
        self._live = live
        self._partitions = partitions
        self.in_cluster = not str(session.sparkContext.master).startswith("local[")
        self._anchors = Anchors(session, partitions) if self.in_cluster else None
        self._garbage: list[str] = []
        self._lock = threading.Lock()

    def step(self, task: KeyedTask, state: KeyedState, frame: DataFrame, name: StepName) -> KeyedOutput:
        with self._lock:
            garbage, self._garbage = self._garbage, []
        stage = KeyedStage(
            task=task,
            versions=state.partitions,
            live=LiveDirectory(None if self.in_cluster else str(self._live), self._live.name),
            output_directory=str(self._live / "batches"),
            prefix=f"a{name.attempt}-s{name.step}",
            garbage=tuple(garbage),
        )
        shuffled = self._shuffled(task, frame)
        if self._anchors is None:
            rows = shuffled.mapInArrow(stage, RESULT).collect()
        else:
            rows = self._anchors.run_beside(shuffled, stage).collect()
        return self._collected(task, state, {row[0]: json.loads(row[1]) for row in rows})

    def load(self, task: KeyedTask, segments: list[list[SegmentRef]], store: Store | None) -> KeyedState:
        """Verified live state; in a cluster each partition's segments are copied to the executor that anchors it."""
        state = load_segments(task, segments, store, self._live / "state", self._partitions)
        if self._anchors is None:
            return state
        self._anchors.renew()
        if not any(state.partitions):
            return state
        stage = LoadStage(state.partitions, LiveDirectory(None, self._live.name))
        rows = self._anchors.frame().mapInArrow(stage, RESULT).collect()
        versions = list(state.partitions)
        for partition, result in rows:
            versions[partition] = tuple(Segment(*fields) for fields in json.loads(result))
        return KeyedState(tuple(versions))

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

    def _shuffled(self, task: KeyedTask, frame: DataFrame) -> DataFrame:
        """Only the columns the operator needs, each row in the partition that owns its key group."""
        positions = list(POSITION_COLUMNS) if task.stamped else []
        needed = [f"`{column}`" for column in columns_of(task)]
        keyed = frame.select(*[F.expr(c) for c in needed], *positions).withColumn(
            "__hf_hash", F.expr(spark_hash_expression(list(task.spec.by)))
        )
        group = F.pmod(F.col("__hf_hash"), F.lit(KEY_GROUPS))
        partition = (group * self._partitions / KEY_GROUPS).cast("int")
        if self._anchors is not None:
            return self._anchors.partitioned(keyed, partition)
        return keyed.repartitionById(self._partitions, partition)

    def _collected(
        self, task: KeyedTask, state: KeyedState, results: dict[int, dict[str, Any]]
    ) -> KeyedOutput:
        versions = list(state.partitions)
        files: list[str] = []
        count = 0
        for partition, result in results.items():
            versions[partition] = tuple(Segment(*fields) for fields in result["segments"])
            if result["output"]:
                files.append(result["output"])
                count += result["rows"]
        if not files:
            return KeyedOutput(KeyedState(tuple(versions)), None, 0)
        out = self._session.read.schema(spark_schema(output_schema_of(task))).parquet(*files)
        return KeyedOutput(KeyedState(tuple(versions)), out, count, tuple(files))
