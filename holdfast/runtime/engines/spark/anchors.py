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
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.runtime.engines.spark.stage import RESULT, RESULT_SCHEMA

SEAT = "__hf_seat"
HAS_NUMBERS = hasattr(DataFrame, "repartitionById")
"""Since Spark 4.1 a partition can be named by its number; before, and beside anchors, it is by its seat."""
_MASK, _SEED = 0xFFFFFFFF, 42

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Anchors:
    """Anchors of one engine. `renew` is called when elements restore; frames may be used by several threads."""

    def __init__(self, session: SparkSession, partitions: int) -> None:
        self._session = session
        self._partitions = partitions
        self._frame: DataFrame | None = None
        self._places: RDD[Any] | None = None

    def renew(self) -> None:
        """Cache the anchors on the executors that are there now, if they are not cached already."""
        if self._frame is None:
            seats = self._session.createDataFrame([(s,) for s in seats_of(self._partitions)], f"{SEAT} int")
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
        seated = rows.withColumn(SEAT, _seat(self._partitions, partition))
        return seated.repartition(self._partitions, SEAT)

    def run_beside(self, rows: DataFrame, stage: Stage) -> DataFrame:
        """What `stage` yields from the rows, in tasks that run where the anchors are."""

        def cogrouped(anchor: pa.Table, group: pa.Table) -> pa.Table:
            return pa.Table.from_batches(list(stage(iter(group.to_batches()))), schema=RESULT_SCHEMA)

        return self.frame().groupBy(SEAT).cogroup(rows.groupBy(SEAT)).applyInArrow(cogrouped, RESULT)


def by_number(rows: DataFrame, partitions: int, column: str) -> DataFrame:
    """Rows whose `column` is p shuffled to partition p, of so many."""
    if HAS_NUMBERS:
        return rows.repartitionById(partitions, F.col(column))
    return rows.repartition(partitions, _seat(partitions, F.col(column)))


def _seat(partitions: int, partition: Column) -> Column:
    return F.element_at(F.array(*map(F.lit, seats_of(partitions))), partition + 1)


@cache
def seats_of(partitions: int) -> tuple[int, ...]:
    """For each partition the smallest number that Spark's hash sends there."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(hash_of(number) % partitions, number)
        number += 1
    return tuple(found[partition] for partition in range(partitions))


def hash_of(number: int) -> int:
    """Spark's `hash` of an INT that is not negative: Murmur3, 32 bits, signed, with Spark's seed."""
    k = _turned(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_turned(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK) ^ 4  # 4: the bytes of an INT
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _turned(bits: int, by: int) -> int:
    return (bits << by | bits >> 32 - by) & _MASK
