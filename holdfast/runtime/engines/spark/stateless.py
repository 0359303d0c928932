"""Stateless operators as DataFrame transformations: Catalyst does the work. Used by steps and by the analyser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.errors import TopologyError
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import (
    FilterSpec,
    MapArrowSpec,
    Operator,
    SelectSpec,
    SplitSpec,
    SqlSpec,
    TransformSpec,
    UnionSpec,
    WithColumnsSpec,
)

_view_lock = threading.Lock()


def apply_stateless(operator: Operator, frame: DataFrame, stamped: bool) -> list[DataFrame]:
    """One output frame per port. `stamped`: position columns pass through unseen by the user's expressions."""
    match operator.spec:
        case FilterSpec(condition=condition):
            return [frame.filter(condition)]
        case SelectSpec(columns=columns):
            return [_select(frame, [_column(c) for c in columns], stamped)]
        case WithColumnsSpec(columns=columns):
            return [frame.withColumns({name: _column(c) for name, c in columns.items()})]
        case TransformSpec(fn=fn):
            return [_transformed(operator, fn, without_positions(frame))]
        case SqlSpec(query=query):
            return [_sql(without_positions(frame), query)]
        case MapArrowSpec(fn=fn, schema=schema):
            return [without_positions(frame).mapInArrow(arrow_mapper(fn, schema), spark_schema(schema))]
        case UnionSpec():
            return [frame]
        case SplitSpec(conditions=conditions, otherwise=otherwise):
            return _split(frame, [_column(c) for c in conditions], otherwise)
        case _:
            raise TopologyError(f"operator {operator.name!r} ({operator.kind}) is not stateless.")


def without_positions(frame: DataFrame) -> DataFrame:
    present = [name for name in POSITION_COLUMNS if name in frame.columns]
    return frame.drop(*present) if present else frame


def spark_schema(schema: pa.Schema) -> Any:
    """Arrow schema → StructType; a timestamp without zone stays without zone."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Columns of a frame as Arrow, without positions; timestamps in UTC."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([field for field in schema if field.name not in POSITION_COLUMNS])


def arrow_mapper(
    fn: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`fn` over tables as a function over Spark's record batches."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from fn(pa.Table.from_batches([batch])).select(schema.names).cast(schema).to_batches()

    return run


class SparkAnalyser:
    """Asks Catalyst over empty DataFrames."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._arrow = ArrowAnalyser()

    def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]:
        if not isinstance(
            operator.spec, FilterSpec | SelectSpec | WithColumnsSpec | TransformSpec | SqlSpec | SplitSpec
        ):
            return self._arrow.output_schemas(operator, input_schemas)
        empty = self._session.createDataFrame([], spark_schema(input_schemas[0]))
        return [arrow_schema(out) for out in apply_stateless(operator, empty, False)]


def _column(value: Any) -> Column:
    return F.expr(value) if isinstance(value, str) else value


def _select(frame: DataFrame, columns: list[Column], stamped: bool) -> DataFrame:
    selected = frame.select(*columns)
    # A star brings the positions along by itself.
    missing = [name for name in POSITION_COLUMNS if stamped and name not in selected.columns]
    return frame.select(*columns, *missing) if missing else selected


def _transformed(operator: Operator, fn: Callable[[Any], Any], frame: DataFrame) -> DataFrame:
    result = fn(frame)
    if not isinstance(result, DataFrame):
        raise TopologyError(
            f"the function of transform {operator.name!r} returned a {type(result).__name__}, not a DataFrame.",
            cure="Return the transformed DataFrame.",
        )
    return result


def _sql(frame: DataFrame, query: str) -> DataFrame:
    # The plan is resolved at once, so the view may go as soon as the query is parsed; the name is shared by all
    # threads of the session, hence the lock.
    with _view_lock:
        frame.createOrReplaceTempView("this")
        try:
            return frame.sparkSession.sql(query)
        finally:
            frame.sparkSession.catalog.dropTempView("this")


def _split(frame: DataFrame, conditions: list[Column], otherwise: bool) -> list[DataFrame]:
    holds = [F.coalesce(condition, F.lit(False)) for condition in conditions]
    outputs: list[DataFrame] = []
    for index, condition in enumerate(holds):
        earlier = [~h for h in holds[:index]]
        outputs.append(frame.filter(reduce(lambda a, b: a & b, [*earlier, condition])))
    if otherwise:
        outputs.append(frame.filter(reduce(lambda a, b: a & b, [~h for h in holds])))
    return outputs
