"""What a keyed aggregate computes: `holdfast.sum("amount")`, `holdfast.count()`, … and the columns that come out.

The functions share their names with Python's built-ins, as PySpark's do: use them as `holdfast.sum`, or import them
under another name.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from holdfast.errors import TopologyError
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import column_type, key_fields, key_names
from holdfast.language.operators.event_time import UsesTime, times_of_ttl, ttl_with_times
from holdfast.language.operators.values import Delays, EventWindow, RowWindow, Ttl
from holdfast.language.schema import to_arrow
from holdfast.state.aggregates import function_names
from holdfast.state.aggregates.extremes import has_order
from holdfast.state.aggregates.function_names import FUNCTIONS, UserFunction
from holdfast.state.columns.arrays import is_number, list_of
from holdfast.state.columns.hashing import plain

EMITS = ("changes", "each")
_KEYS = (
    "Give one or more column names: aggregate('word', n=holdfast.count()). For all rows together make a key that all of them"
    " have: with_columns(all='1').aggregate('all', …)."
)

Aggregates = tuple[tuple[str, str, str | None], ...]
"""What is computed: output column, function, input column or None to count rows."""


@dataclass(frozen=True, slots=True)
class AggregateSpec(Spec, UsesTime):
    """Keyed running aggregate."""

    by: tuple[str, ...]
    aggregates: Aggregates
    emit: Literal["changes", "each"] = "changes"
    ttl: Ttl | None = None

    def times(self) -> tuple[str, ...]:
        return times_of_ttl(self.ttl)

    def follows(self) -> bool:
        return self.ttl is not None and self.ttl.on is not None and self.ttl.delay_us is None

    def with_times(
        self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None
    ) -> AggregateSpec:
        return self if self.ttl is None else replace(self, ttl=ttl_with_times(self.ttl, columns, delays))


@dataclass(frozen=True, slots=True)
class WindowSpec(Spec, UsesTime):
    """Aggregates over windows, per key; without keys over all rows. `late`: one more port with the rows that came too
    late, which only event time knows."""

    by: tuple[str, ...]
    aggregates: Aggregates
    window: EventWindow | RowWindow
    late: bool = False

    def times(self) -> tuple[str, ...]:
        return (self.window.on,) if isinstance(self.window, EventWindow) else ()

    def follows(self) -> bool:
        return isinstance(self.window, EventWindow) and not self.window.delays_us

    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> WindowSpec:
        if not isinstance(self.window, EventWindow):
            return self
        return replace(self, window=self.window.with_times(columns[0], delays, idle_us))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over one column; without a column `count` counts rows."""

    function: str
    column: str | None = None


def count(column: str | None = None) -> Aggregate:
    """Number of rows; with a column, of its values that are not null."""
    return Aggregate("count", None if column is None else _column("count", column))


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


def variance(column: str) -> Aggregate:
    """Sample variance of the values that are not null, a double; null for fewer than two. As Spark's var_samp.

    Right to the last digits, whatever the order of rows and however far the values are from zero."""
    return Aggregate("variance", _column("variance", column))


def stddev(column: str) -> Aggregate:
    """Sample standard deviation: the root of `variance`. As Spark's stddev."""
    return Aggregate("stddev", _column("stddev", column))


def first(column: str) -> Aggregate:
    """The value of the key's first row in the order of the source, null if it is null there.

    Needs rows of one source that keep their positions. In a window: of the rows that count for it."""
    return Aggregate("first", _column("first", column))


def last(column: str) -> Aggregate:
    """The value of the key's last row in the order of the source, null if it is null there; see `first`."""
    return Aggregate("last", _column("last", column))


def collect(column: str) -> Aggregate:
    """The list of the values that are not null, in the order of the source (see `first`), as Spark's collect_list.

    Everything is kept: a step that touches a key reads and writes all its values. For windows and small keys."""
    return Aggregate("collect", _column("collect", column))


def collect_set(column: str) -> Aggregate:
    """The different values that are not null, ascending. -0.0 is 0.0, NaN equals NaN and stands last.

    All of them are kept: a step that touches a key reads and writes them all."""
    return Aggregate("collect_set", _column("collect_set", column))


def count_distinct(column: str) -> Aggregate:
    """How many different values that are not null there are: exact, and at the cost of `collect_set`."""
    return Aggregate("count_distinct", _column("count_distinct", column))


def quantile(column: str, q: float) -> Aggregate:
    """The smallest value that at least the share `q` (0 to 1) of the values do not exceed, as a double: `quantile("ms",
    0.99)`. Null if there are none.

    Exact for keys with at most 256 different values. Beyond that within 0.8 % of the true one, in bounded space; the
    same whatever the order of rows."""
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise TopologyError(
            f"holdfast.quantile takes a share from 0 to 1, not {q!r}.",
            cure=f"Write quantile({column!r}, 0.5) for the median, quantile({column!r}, 0.99) for 99 percent.",
        )
    return Aggregate(function_names.quantile_name(q), _column("quantile", column))


def _column(function: str, column: Any) -> str:
    if not isinstance(column, str) or not column:
        raise TopologyError(
            f"holdfast.{function} takes the name of a column, not {column!r}.",
            cure="Compute expressions before: stream.with_columns(x='price * volume').aggregate(…, t=sum('x')).",
        )
    return column


# --- from the arguments of Stream.aggregate to a spec ---------------------------------------------------------------


def aggregate_spec(
    by: str | Sequence[str], emit: str, aggregates: Mapping[str, Aggregate], ttl: Ttl | None = None
) -> AggregateSpec:
    """The spec of a running aggregate; refuses what can be refused without knowing the columns."""
    if emit not in EMITS:
        raise TopologyError(
            f"emit={emit!r} is not known.",
            cure="Use emit='changes' (a row per changed key) or emit='each' (a row per input row).",
        )
    keys = key_names(by, "An aggregate", _KEYS)
    return AggregateSpec(keys, _aggregates(aggregates), "each" if emit == "each" else "changes", ttl)


def window_spec(
    by: str | Sequence[str],
    emit: str,
    window: EventWindow | RowWindow,
    late: bool,
    aggregates: Mapping[str, Aggregate],
) -> WindowSpec:
    """The spec of an aggregate over windows."""
    if not isinstance(window, EventWindow | RowWindow):
        raise TopologyError(
            f"window={window!r} is no window.",
            cure="Use holdfast.tumbling(…), holdfast.sliding(…) or holdfast.session(…).",
        )
    if emit != "changes":
        raise TopologyError(
            f"emit={emit!r} does not go with a window, which emits when it is complete.", cure="Leave it out."
        )
    if late and not isinstance(window, EventWindow):
        raise TopologyError(
            "late=True does not go with a window of rows: no row comes too late to be counted.",
            cure="Leave it out, or use a window over event time.",
        )
    keys = key_names(by, "An aggregate", _KEYS, needed=False)
    return WindowSpec(keys, _aggregates(aggregates), window, late)


def _aggregates(aggregates: Mapping[str, Aggregate]) -> Aggregates:
    for name, value in aggregates.items():
        if not isinstance(value, Aggregate):
            raise TopologyError(
                f"The aggregate {name}={value!r} is not one of holdfast's.",
                cure=f"Use holdfast.{', holdfast.'.join(FUNCTIONS)}: {name}=holdfast.sum('amount').",
            )
    return tuple((name, value.function, value.column) for name, value in aggregates.items())


# --- types ----------------------------------------------------------------------------------------------------------


def aggregate_schema(schema: pa.Schema, spec: AggregateSpec | WindowSpec) -> pa.Schema:
    """Columns that come out: the keys, then the aggregates. Positions are not part of it."""
    values = [pa.field(name, _result_type(schema, fn, column)) for name, fn, column in spec.aggregates]
    return pa.schema([*key_fields(schema, spec.by), *values])


def _result_type(schema: pa.Schema, function: str, column: str | None) -> pa.DataType:
    if not function_names.is_function(function):
        raise TopologyError(
            f"There is no aggregate function {function!r}.", cure=f"Use {', '.join(FUNCTIONS)}."
        )
    if function == "count" and column is None:
        return pa.int64()
    if isinstance(function, UserFunction):
        for name in function.columns:
            _kept(column_type(schema, name), function, name)
        return function.result
    type_ = column_type(schema, column or "")
    match function_names.family(function):
        case "count":
            return pa.int64()
        case "first" | "last":
            return _kept(type_, function, column)
        case "collect":
            return list_of(_kept(type_, function, column))
        case "min" | "max":
            return _comparable(type_, function, column)
        case "count_distinct":
            _distinguishable(type_, function, column)
            return pa.int64()
        case "collect_set":
            return list_of(_distinguishable(type_, function, column))
        case "variance" | "stddev" | "quantile" as name:
            return _as_double(type_, name, column)
    return _number(type_, function, column)


def _kept(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if pt.is_null(type_):
        raise TopologyError(
            f"{function}({column!r}) has no values: the column is of type null.",
            cure=f"Give it a type before: with_columns({column}='cast({column} as string)').",
        )
    return type_


def _distinguishable(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if pt.is_nested(type_) or not has_order(plain(pa.array([], type_)).type):
        raise TopologyError(
            f"{function}({column!r}) cannot tell values of type {type_} apart.",
            cure="Use a string, binary, number, boolean, date or timestamp: make one with with_columns(…) before.",
        )
    return type_


def _as_double(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if not is_number(type_):
        raise _needs_numbers(type_, function, column)
    return pa.float64()


def _comparable(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if pt.is_nested(type_) or pt.is_null(type_):
        raise TopologyError(
            f"{function}({column!r}) cannot compare values of type {type_}.",
            cure="Take a simple column out of it with with_columns(…) before.",
        )
    return type_


def _needs_numbers(type_: pa.DataType, function: str, column: str | None) -> TopologyError:
    return TopologyError(
        f"{function}({column!r}) needs numbers, and the column is of type {type_}.",
        cure=f"Convert it before: with_columns({column}='cast({column} as double)').",
    )


def _number(type_: pa.DataType, function: str, column: str | None) -> pa.DataType:
    if not (pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_)):
        raise _needs_numbers(type_, function, column)
    if pt.is_decimal(type_):
        more_digits, more_scale = (4, 4) if function == "avg" else (10, 0)
        return pa.decimal128(
            builtins.min(38, type_.precision + more_digits), builtins.min(38, type_.scale + more_scale)
        )
    return pa.float64() if function == "avg" or pt.is_floating(type_) else pa.int64()


_CURE = 'Write hf.udaf(lambda price: pc.max(price).as_py() - pc.min(price).as_py(), "price", type="double").'


def udaf(fn: Callable[..., Any], *columns: str, type: Any) -> Aggregate:
    """An aggregate of your own: `fn` is given the columns of all rows of a window and key as Arrow arrays, in the order of
    the source, nulls among them, and returns one value of `type`, or None.

        def vwap(price, volume):
            return pc.sum(pc.multiply(price, volume)).as_py() / pc.sum(volume).as_py()

        trades.aggregate("symbol", window=hf.tumbling(rows=100), vwap=hf.udaf(vwap, "price", "volume", type="double"))

    It goes with windows of all kinds. As with `collect` all rows are kept until the window is complete, and rows of one
    source are needed that keep their positions; without a window they are kept for ever. `fn` is sent to the executors
    with what it refers to, and should depend on nothing but its arguments."""
    if not callable(fn):
        raise TopologyError(f"udaf() takes a function, not {fn!r}.", cure=_CURE)
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise TopologyError(f"udaf() takes the names of columns, not {columns!r}.", cure=_CURE)
    if len(set(columns)) < len(columns):
        raise TopologyError(f"udaf() was given a column twice: {', '.join(columns)}.", cure="Name each once.")
    return Aggregate(UserFunction(fn, columns, _type(type)), columns[0])


def _type(type_: Any) -> pa.DataType:
    if isinstance(type_, pa.DataType):
        return type_
    if not isinstance(type_, str):
        raise TopologyError(
            f"type={type_!r} is no type.", cure="Write type='double', or give a pyarrow type."
        )
    schema = to_arrow(f"value {type_}", "the type of udaf()")
    if len(schema) != 1:
        raise TopologyError(f"type={type_!r} is not one type.", cure="Write type='double'.")
    return schema.field(0).type
