"""`Beacon`: a deterministic generator. What a row holds depends only on its number."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigError, StateError
from holdfast.language.connectors import POSITION_COLUMNS, Lag, Slice, Source, Stamp
from holdfast.sources.parquet_tasks import with_positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGIN_US = 1_577_836_800_000_000
"""2020-01-01T00:00:00Z in microseconds: the timestamp of row 0."""

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("timestamp", pa.timestamp("us", tz="UTC"))])
_PACE_S = 0.1


class Beacon(Source):
    """Rows (id, timestamp) with id = 0, 1, 2, … and timestamp = 2020-01-01 + id × interval.

    Example::

        ticks = hf.Beacon(rows=1_000_000, rate=50_000)

    `rows=None` never ends. `rate` (rows per second) sets the interval (1 ms without it) and limits how many rows
    exist so far, counted by a monotonic clock from the moment the run took up its position; time never changes what a
    row holds. A bounded run of a Beacon with `rows` and `rate` reads all rows at that pace: `next_slice` then waits
    until some are due. `partitions` is the number of Spark partitions per step (default: Spark's).
    """

    def __init__(
        self,
        rows: int | None = None,
        rate: float | None = None,
        rows_per_step: int = 100_000,
        partitions: int | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        if rows is not None and rows < 0:
            raise ConfigError(
                f"a Beacon cannot have {rows} rows.", cure="Give 0 or more, or None for no end."
            )
        if (
            (rate is not None and rate <= 0)
            or rows_per_step < 1
            or (partitions is not None and partitions < 1)
        ):
            raise ConfigError(
                "rate, rows_per_step and partitions of a Beacon must be positive.", cure="Correct them."
            )
        self._rows, self._rate, self._step, self._partitions = rows, rate, rows_per_step, partitions
        self._interval_us = 1000 if rate is None else max(1, round(1_000_000 / rate))
        self._clock = clock or SystemClock()
        self._bounded = False
        self._next = self._begin = 0
        self._since: float | None = None

    def schema(self) -> pa.Schema:
        return SCHEMA

    def bound(self) -> None:
        if self._rows is None:
            raise ConfigError(
                "an endless Beacon has no last row.", cure="Give rows=, or run without until='available'."
            )
        self._bounded = True

    def unbound(self) -> None:
        self._bounded = False

    def cut_smaller(self, rows: int) -> None:
        self._step = min(self._step, rows)

    def seek(self, state: Any | None) -> None:
        if state is not None and (not isinstance(state, dict) or not isinstance(state.get("next"), int)):
            raise StateError("the snapshot is not one of a Beacon.", cure="Check the store.")
        self._next = self._begin = 0 if state is None else state["next"]
        self._since = None

    def snapshot(self) -> Any:
        return {"next": self._next}

    def lag(self) -> Lag:
        """With a rate, rows that are due; else all that are left, if they have an end."""
        there = self._rows if self._rate is None or self._rows == self._next else self._due()
        if there is None:
            return Lag()
        rows = max(0, there - self._next if self._rows is None else min(there, self._rows) - self._next)
        return Lag(rows, seconds=None if self._rate is None else rows / self._rate)

    def next_slice(self) -> Slice | None:
        end = self._next + self._step
        if self._rows is not None:
            end = min(end, self._rows)
        if self._rate is not None and end > self._next:
            if self._bounded:
                self._wait_for(min(end, self._next + max(1, int(self._rate * _PACE_S))))
            end = min(end, self._due())
        if end <= self._next:
            return None
        start, self._next = self._next, end
        return Slice(start, end, end - start)

    def _due(self) -> int:
        """How many rows exist by now."""
        if self._since is None:
            self._since = self._clock.monotonic()
        return self._begin + int((self._clock.monotonic() - self._since) * (self._rate or 0))

    def _wait_for(self, row: int) -> None:
        condition = threading.Condition()
        with condition:
            while self._due() < row:
                self._clock.wait(condition, min(_PACE_S, 1 / (self._rate or 1)))

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        from pyspark.sql import functions as F

        source, ordinal, row = POSITION_COLUMNS
        frame = session.range(piece.start, piece.end, 1, self._partitions)
        at = F.timestamp_micros(F.lit(ORIGIN_US) + F.col("id") * F.lit(self._interval_us))
        columns = [F.col("id"), at.alias("timestamp")]
        if stamp is not None:
            columns.append(F.lit(stamp.source_index).cast("int").alias(source))
            columns += [F.lit(0).cast("bigint").alias(ordinal), F.col("id").alias(row)]
        return frame.select(*columns)

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        ids = np.arange(piece.start, piece.end, dtype=np.int64)
        at = pa.array(ORIGIN_US + ids * self._interval_us).cast(SCHEMA.field("timestamp").type)
        table = pa.table([pa.array(ids), at], schema=SCHEMA)
        if stamp is None:
            return table
        return with_positions(table, stamp, pa.array(np.zeros(len(ids), dtype=np.int64)), pa.array(ids))

    def describe(self) -> str:
        amount = "endless" if self._rows is None else f"{self._rows} rows"
        return f"beacon, {amount}" + (f" at {self._rate:g} rows/s" if self._rate is not None else "")
