"""What a keyed aggregate computes: `holdfast.sum("amount")`, `holdfast.count()`, … and the columns that come out.

The functions share their names with Python's built-ins, as PySpark's do: use them as `holdfast.sum`, or import them
under another name.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from holdfast.errors import TopologyError
from holdfast.language.graph import AggregateSpec, TimeWindow, WindowSpec

FUNCTIONS = ("count", "sum", "min", "max", "avg")
EMITS = ("changes", "each")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over one column; the column of `count` is None: it counts rows."""

    function: str
    column: str | None = None


def count() -> Aggregate:
    """Number of rows."""
    return Aggregate("count")


def sum(column: str) -> Aggregate:
    """Sum of the values that are not null; null if there are none."""
    return Aggregate("sum", _column("sum", column))


def min(column: str) -> Aggregate:
    """Smallest value that is not null."""
    return Aggregate("min", _column("min", column))


def max(column: str) -> Aggregate:
    """Largest value that is not null."""
    return Aggregate("max", _column("max", column))


def avg(column: str) -> Aggregate:
    """Mean of the values that are not null: a double; of decimals a decimal with four more digits, as in Spark."""
    return Aggregate("avg", _column("avg", column))


def _column(function: str, column: Any) -> str:
    if not isinstance(column, str) or not column:
        raise TopologyError(
            f"holdfast.{function} takes the name of a column, not {column!r}.",
            cure="Compute expressions before: stream.with_columns(x='price * volume').aggregate(…, t=sum('x')).",
        )
    return column


# --- from the arguments of Stream.aggregate to a spec ---------------------------------------------------------------


def aggregate_spec(by: str | Sequence[str], emit: str, aggregates: Mapping[str, Aggregate]) -> AggregateSpec:
    """The spec of a running aggregate; refuses what can be refused without knowing the columns."""
    if emit not in EMITS:
        raise TopologyError(
            f"emit={emit!r} is not known.",
            cure="Use emit='changes' (a row per changed key) or emit='each' (a row per input row).",
        )
    keys = _keys(by, needed=True)
    return AggregateSpec(keys, _aggregates(aggregates), "each" if emit == "each" else "changes")


def window_spec(
    by: str | Sequence[str],
    emit: str,
    window: TimeWindow,
    late: bool,
    aggregates: Mapping[str, Aggregate],
) -> WindowSpec:
    """The spec of an aggregate over windows."""
    if not isinstance(window, TimeWindow):
        raise TopologyError(
            f"window={window!r} is no window.", cure="Use holdfast.tumbling(…) or holdfast.sliding(…)."
        )
    if emit != "changes":
        raise TopologyError(
            f"emit={emit!r} does not go with a window, which emits when it is complete.", cure="Leave it out."
        )
    return WindowSpec(_keys(by, needed=False), _aggregates(aggregates), window, late)


def _keys(by: str | Sequence[str], *, needed: bool) -> tuple[str, ...]:
    keys = (by,) if isinstance(by, str) else tuple(by)
    if (needed and not keys) or not all(isinstance(key, str) and key for key in keys):
        raise TopologyError(
            f"An aggregate needs the names of its key columns, not {by!r}.",
            cure="Give one or more column names: aggregate('word', n=holdfast.count()).",
        )
    return keys


def _aggregates(aggregates: Mapping[str, Aggregate]) -> tuple[tuple[str, str, str | None], ...]:
    for name, value in aggregates.items():
        if not isinstance(value, Aggregate):
            raise TopologyError(
                f"The aggregate {name}={value!r} is not one of holdfast's.",
                cure=f"Use holdfast.{', holdfast.'.join(FUNCTIONS)}: {name}=holdfast.sum('amount').",
            )
    return tuple((name, value.function, value.column) for name, value in aggregates.items())


# --- types ----------------------------------------------------------------------------------------------------------


def aggregate_schema(schema: pa.Schema, spec: AggregateSpec) -> pa.Schema:
    """Columns that come out: the keys, then the aggregates. Positions are not part of it."""
    keys = [pa.field(key, _key_type(schema, key)) for key in spec.by]
    values = [pa.field(name, _result_type(schema, fn, column)) for name, fn, column in spec.aggregates]
    return pa.schema(keys + values)


def _type_of(schema: pa.Schema, column: str) -> pa.DataType:
    index = schema.get_field_index(column)
    if index < 0:
        raise TopologyError(
            f"There is no column {column!r}.", cure=f"Available columns: {', '.join(schema.names) or 'none'}."
        )
    return schema.field(index).type


def _key_type(schema: pa.Schema, column: str) -> pa.DataType:
    type_ = _type_of(schema, column)
    if pt.is_nested(type_):
        raise TopologyError(
            f"The column {column!r} of type {type_} cannot be a key.",
            cure="Use columns of simple types: take the fields out with with_columns(…) before.",
        )
    return type_


def _result_type(schema: pa.Schema, function: str, column: str | None) -> pa.DataType:
    if function == "count":
        return pa.int64()
    if function not in FUNCTIONS:
        raise TopologyError(
            f"There is no aggregate function {function!r}.", cure=f"Use {', '.join(FUNCTIONS)}."
        )
    type_ = _type_of(schema, column or "")
    if function in ("min", "max"):
        return _comparable(type_, function, column)
    return _number(type_, function, column)


def _comparable(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if pt.is_nested(type_) or pt.is_null(type_):
        raise TopologyError(
            f"{function}({column!r}) cannot compare values of type {type_}.",
            cure="Take a simple column out of it with with_columns(…) before.",
        )
    return type_


def _number(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if not (pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_)):
        raise TopologyError(
            f"{function}({column!r}) needs numbers, and the column is of type {type_}.",
            cure=f"Convert it before: with_columns({column}='cast({column} as double)').",
        )
    if pt.is_decimal(type_):
        more_digits, more_scale = (4, 4) if function == "avg" else (10, 0)
        return pa.decimal128(
            builtins.min(38, type_.precision + more_digits), builtins.min(38, type_.scale + more_scale)
        )
    return pa.float64() if function == "avg" or pt.is_floating(type_) else pa.int64()
