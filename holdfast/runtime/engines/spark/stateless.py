"""What stateless operators are made of on Spark: DataFrames, Columns, SQL. Used by steps and by the analyser."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.language.connectors import POSITION_COLUMNS, RowCheck
from holdfast.language.graph import Operator
from holdfast.language.hosted import ERRORS
from holdfast.language.operators.stateless import SqlSpec, TransformSpec
from holdfast.operators.bad_rows import MARK, REASON, letters_of, marked
from holdfast.operators.kinds import kind_of
from holdfast.operators.stateless import StatelessKind
from holdfast.runtime.engines.spark.readable import as_frame
from holdfast.sources.schemas import arrow_of, spark_frame
from holdfast.state.columns.arrays import in_utc

logger = logging.getLogger("holdfast.run")

_view_lock = threading.Lock()
_MEANT = {
    "Aggregate": ("aggregates", "aggregate(…)"),
    "Window": ("computes over partitions", "aggregate(…, window=…) or top_n(…)"),
    "Distinct": ("leaves out what comes twice", "dedup(…)"),
    "Deduplicate": ("leaves out what comes twice", "dedup(…)"),
    "GlobalLimit": ("takes the first rows", "top_n(…)"),
}
_ACROSS_ROWS = re.compile(rf"^[ :|+-]*({'|'.join(_MEANT)}) ?", re.MULTILINE)
"""Nodes of plans that bring rows together."""


def without_positions(frame: DataFrame) -> DataFrame:
    present = [name for name in POSITION_COLUMNS if name in frame.columns]
    return frame.drop(*present) if present else frame


def spark_schema(schema: pa.Schema) -> Any:
    """Arrow schema → StructType; a timestamp without zone stays without zone."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Columns of a frame as Arrow, without positions; timestamps in UTC."""
    schema = arrow_of(frame.schema)
    return pa.schema([field for field in schema if field.name not in POSITION_COLUMNS])


def arrow_mapper(
    fn: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`fn` over tables as a function over Spark's record batches."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from (
                fn(in_utc(pa.Table.from_batches([batch]))).select(schema.names).cast(schema).to_batches()
            )

    return run


def checked_rows(frame: DataFrame, check: RowCheck, sink: str) -> DataFrame:
    """The rows of a frame, each with why a sink cannot write it; null if it can."""
    schema = arrow_schema(frame).append(MARK)
    return frame.mapInArrow(
        arrow_mapper(partial(marked, check=check, sink=sink), schema), spark_schema(schema)
    )


def dealt_out(rows: DataFrame, sink: str) -> tuple[DataFrame, DataFrame]:
    """Marked rows: those that can be written, and letters about the others."""
    mapper = arrow_mapper(partial(letters_of, sink=sink), ERRORS)
    bad = rows.filter(F.col(REASON).isNotNull()).mapInArrow(mapper, spark_schema(ERRORS))
    return rows.filter(F.col(REASON).isNull()).drop(REASON), bad


class SparkFrames:
    """What stateless kinds ask of Spark."""

    def frame(self, rows: Any) -> DataFrame:
        return as_frame(rows)

    def bare(self, rows: Any) -> DataFrame:
        return without_positions(as_frame(rows))

    def is_frame(self, value: Any) -> bool:
        return isinstance(value, DataFrame)

    def column(self, value: Any) -> Column:
        return F.expr(value) if isinstance(value, str) else value

    def holds(self, value: Any) -> Column:
        return F.coalesce(self.column(value), F.lit(False))

    def columns(self, frame: DataFrame) -> pa.Schema:
        return arrow_schema(frame)

    def from_table(self, session: SparkSession, table: pa.Table) -> DataFrame:
        return spark_frame(session, table)

    def sent(self, session: SparkSession, value: Any) -> Any:
        return session.sparkContext.broadcast(value)

    def sql(self, frame: DataFrame, query: str) -> DataFrame:
        # The plan is resolved at once, so the view may go as soon as the query is parsed; the name is shared by all
        # threads of the session, hence the lock.
        with _view_lock:
            frame.createOrReplaceTempView("this")
            try:
                return frame.sparkSession.sql(query)
            finally:
                frame.sparkSession.catalog.dropTempView("this")

    def mapped(self, frame: DataFrame, fn: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
        return frame.mapInArrow(arrow_mapper(fn, schema), spark_schema(schema))


FRAMES = SparkFrames()


class SparkAnalyser:
    """Asks Catalyst over empty DataFrames."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]:
        kind = kind_of(operator)
        if not isinstance(kind, StatelessKind) or not kind.expressions:
            return kind.schemas(operator, input_schemas)
        empty = self._session.createDataFrame([], spark_schema(input_schemas[0]))
        frames = kind.frames(operator, empty, False, FRAMES)
        if isinstance(operator.spec, TransformSpec | SqlSpec):
            tell_of_steps(f"{operator.kind} {operator.name!r}", plan_of(frames[0]))
        return [arrow_schema(out) for out in frames]


def plan_of(frame: DataFrame) -> str:
    """The plan of a frame as Catalyst prints it: a node per line, behind what draws the tree."""
    return str(frame._jdf.queryExecution().analyzed().toString())


def tell_of_steps(operator: str, plan: str) -> None:
    """Warn of what the user's own DataFrame does within each step, where it would have to remember the steps before."""
    for node in dict.fromkeys(_ACROSS_ROWS.findall(plan)):
        logger.warning(
            "%s %s in each step by itself: rows of two steps do not meet. Use %s, which remembers.",
            operator, *_MEANT[node],
        )  # fmt: skip
