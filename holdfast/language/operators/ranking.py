"""What `top_n` is told, and the columns that come out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.graph import AggregateSpec, TimeWindow, TopNSpec
from holdfast.language.operators.aggregates import aggregate_schema
from holdfast.language.operators.expiry import check_time_column
from holdfast.state.aggregates.extremes import has_order
from holdfast.state.columns.hashing import plain
from holdfast.state.windows.time_windows import END, START

RANK = "rank"


def top_n_spec(n: Any, by: str | Sequence[str], order: str | Sequence[str], window: Any) -> TopNSpec:
    """The spec; refuses what can be refused without knowing the columns."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise TopologyError(f"top_n() takes a number of rows, not {n!r}.", cure="Give 1 or more.")
    if window is not None and not isinstance(window, TimeWindow):
        raise TopologyError(
            f"window={window!r} does not go with top_n().",
            cure="Use a window over event time: window=holdfast.tumbling(60, on='at'), or leave it out.",
        )
    keys = (by,) if isinstance(by, str) else tuple(by)
    if not all(isinstance(key, str) and key for key in keys):
        raise TopologyError(
            f"by={by!r} are no column names.", cure="Name the key columns: by='symbol'; by=[]: all rows."
        )
    return TopNSpec(n, keys, _order(order), window)


def _order(order: Any) -> tuple[tuple[str, bool], ...]:
    columns = (order,) if isinstance(order, str) else tuple(order)
    if not columns or not all(isinstance(column, str) and column.lstrip("-") for column in columns):
        raise TopologyError(
            f"order={order!r} names no columns.",
            cure="Write order='-score' for the largest score first, order=['-score', 'at'] for several columns.",
        )
    chosen = tuple((column.removeprefix("-"), column.startswith("-")) for column in columns)
    names = [name for name, _ in chosen]
    if len(set(names)) < len(names):
        raise TopologyError(f"order={order!r} names a column twice.", cure="Name each column once.")
    return chosen


def top_n_schema(schema: pa.Schema, spec: TopNSpec) -> pa.Schema:
    """Columns that come out: begin and end of the window if there is one, rank, then the row's own."""
    aggregate_schema(schema, AggregateSpec(spec.by, ()))
    for name, _ in spec.order:
        index = schema.get_field_index(name)
        if index < 0:
            raise TopologyError(
                f"There is no column {name!r} to order by.",
                cure=f"Available columns: {', '.join(schema.names)}.",
            )
        kind = schema.field(index).type
        if pa.types.is_nested(kind) or not has_order(plain(pa.array([], kind)).type):
            raise TopologyError(
                f"Rows cannot be ordered by {name!r} of type {kind}.",
                cure="Use a string, number, boolean, date or timestamp: make one with with_columns(…) before.",
            )
    made = [pa.field(RANK, pa.int32())]
    if spec.window is not None:
        check_time_column(schema, spec.window.on, "The windows are over")
        moment = schema.field(spec.window.on).type
        made = [pa.field(START, moment), pa.field(END, moment), *made]
    taken = [field.name for field in made if field.name in schema.names]
    if taken:
        raise TopologyError(
            f"top_n() would make two columns called {', '.join(taken)}.",
            cure="Rename them before, with select(…).",
        )
    return pa.schema([*made, *schema])
