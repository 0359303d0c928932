"""Questions to a log about the past: `between` and `from_position` as DataFrames, `table` without Spark.

Spark lies above this layer: the module that makes DataFrames is imported when somebody asks for one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import ConfigError, StoreError
from holdfast.log import consumers
from holdfast.log.query import choose as choosing
from holdfast.log.query.choose import Asked, Selection
from holdfast.log.query.wanted import Wanted, between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAMES = "holdfast.sources.logs.retrospective"
Moment = datetime | float
"""A time: a datetime (without a zone: UTC), or seconds since 1970."""


class LogQueries(Asked):
    """What a log can be asked about its rows of the past. Only rows that count when it is asked."""

    def between(
        self, t1: Moment | None, t2: Moment | None, *, spark: SparkSession | None = None
    ) -> DataFrame:
        """The rows from the time `t1` on, before `t2`, as a DataFrame of `spark`, or of the active session; None: no bound.
        Segments without such rows are not read."""
        return self._frame(between(t1, t2), spark)

    def from_position(
        self, position: Mapping[int, int] | int, *, spark: SparkSession | None = None
    ) -> DataFrame:
        """The rows from a position on, or from positions by partition, as a DataFrame. InputError: they were trimmed."""
        return self._frame(Wanted(start=self._positions(position)), spark)

    def table(
        self,
        t1: Moment | None = None,
        t2: Moment | None = None,
        *,
        position: Mapping[int, int] | int | None = None,
        columns: list[str] | None = None,
    ) -> pa.Table:
        """The rows from the time `t1` on, before `t2`, and from `position` on, as a table, without Spark: partition by
        partition in their order. All of them must fit into memory."""
        schema = self.facts.schema
        missing = next((name for name in columns or () if name not in schema.names), None)
        if missing is not None:
            raise ConfigError(
                f"the log {self.facts.root} has no column {missing!r}.",
                cure=f"There are: {', '.join(schema.names)}.",
            )
        wanted = between(t1, t2, {} if position is None else self._positions(position))
        chosen = pa.schema(
            [schema.field(name) for name in schema.names if columns is None or name in columns]
        )
        for _ in range(choosing.TRIES):
            try:
                read = choosing.read(self.choose(wanted), None if columns is None else chosen.names)
                return pa.Table.from_batches(list(read), chosen).select(columns or chosen.names)
            except FileNotFoundError:
                continue  # merged meanwhile
        raise StoreError(f"segments of the log {self.facts.root} vanish whenever they are read.")

    def choose(self, wanted: Wanted) -> Selection:
        """Where wanted rows lie now."""
        return choosing.choose(self, wanted)

    def _positions(self, position: Mapping[int, int] | int) -> Mapping[int, int]:
        if isinstance(position, bool) or not isinstance(position, int | Mapping):
            raise ConfigError(
                f"{position!r} is no position.", cure="Give a number, or a dict {partition: position}."
            )
        found = consumers.whole(self.facts, position)
        for partition, at in found.items():
            end = self.bounds(partition, committed=False).end
            if not 0 <= at <= end:
                raise ConfigError(
                    f"position {at} of partition {partition} is not in the log {self.facts.root}, which has rows up to {end}."
                )
        return found

    def _frame(self, wanted: Wanted, spark: SparkSession | None) -> DataFrame:
        frames: Any = importlib.import_module(FRAMES)
        found: DataFrame = frames.frame_of(self, wanted, spark)
        return found
