"""Keeping a partition on the executor that has its live segments.

A small cached frame of *anchors*, one row per partition, is co-grouped with each batch; Spark then runs a partition's
task where its cached anchor lies (a union would do with less work, but remembers hosts only, not executors). An anchor
holds nothing but its number, so recomputing it after its executor was lost is harmless: the task lands elsewhere, does
not find its segments, and fails the element, whose region resets.

Co-grouping partitions by hash, so a partition is named by a *seat*: a number that Spark's hash sends to that very
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.runtime.engines.spark.stage import RESULT, RESULT_SCHEMA

SEAT = "__hf_seat"

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Anchors:
    """Anchors of one engine. `renew` is called when elements restore; frames may be used by several threads."""

    def __init__(self, session: SparkSession, partitions: int) -> None:
        self._session = session
        self._partitions = partitions
        self._seats = _seats(session, partitions)
        self._frame: DataFrame | None = None
        self._places: RDD[Any] | None = None

    def renew(self) -> None:
        """Cache the anchors on the executors that are there now, if they are not cached already."""
        if self._frame is None:
            seats = self._session.createDataFrame([(s,) for s in self._seats], f"{SEAT} int")
            self._frame = seats.repartition(self._partitions, SEAT).persist(StorageLevel.MEMORY_AND_DISK)
        self._frame.count()

    def release(self) -> None:
        if self._frame is not None:
            self._frame.unpersist()
            self._frame = self._places = None

    def places(self) -> RDD[Any]:
        """The anchors as an RDD: tasks without a shuffle run where they are. Made once: it costs a plan."""
        if self._places is None:
            self._places = self.frame().rdd
        return self._places

    def frame(self) -> DataFrame:
        """The anchors alone: for tasks that must run beside the segments."""
        assert self._frame is not None
        return self._frame

    def partitioned(self, rows: DataFrame, partition: Column) -> DataFrame:
        """Rows shuffled to the partition the expression names, in the anchors' partitioning."""
        seats = F.array(*[F.lit(seat) for seat in self._seats])
        seated = rows.withColumn(SEAT, F.element_at(seats, partition + 1))
        return seated.repartition(self._partitions, SEAT)

    def run_beside(self, rows: DataFrame, stage: Stage) -> DataFrame:
        """What `stage` yields from the rows, in tasks that run where the anchors are."""

        def cogrouped(anchor: pa.Table, group: pa.Table) -> pa.Table:
            return pa.Table.from_batches(list(stage(iter(group.to_batches()))), schema=RESULT_SCHEMA)

        return self.frame().groupBy(SEAT).cogroup(rows.groupBy(SEAT)).applyInArrow(cogrouped, RESULT)


def _seats(session: SparkSession, partitions: int) -> list[int]:
    """For each partition the smallest number whose hash partition it is."""
    candidates = session.range(partitions * 64).select(
        F.col("id").cast("int").alias("seat"),
        F.pmod(F.hash(F.col("id").cast("int")), F.lit(partitions)).alias("partition"),
    )
    found = {row[0]: row[1] for row in candidates.groupBy("partition").agg(F.min("seat")).collect()}
    return [found[partition] for partition in range(partitions)]
