"""What `top_n` is told, and the columns that come out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import column_type, key_fields, key_names
from holdfast.language.operators.values import TimeWindow
from holdfast.language.operators.windows import window_fields
from holdfast.state.aggregates.extremes import has_order
from holdfast.state.columns.hashing import plain

RANK = "rank"


@dataclass(frozen=True, slots=True)
class TopNSpec(Spec):
    """The first `n` rows of each key in the order of some columns (True: descending), of each window if there is one."""

    n: int
    by: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    window: TimeWindow | None = None


def top_n_spec(n: Any, by: str | Sequence[str], order: str | Sequence[str], window: Any) -> TopNSpec:
    """The spec; refuses what can be refused without knowing the columns."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise TopologyError(f"top_n() takes a number of rows, not {n!r}.", cure="Give 1 or more.")
    if window is not None and not isinstance(window, TimeWindow):
        raise TopologyError(
            f"window={window!r} does not go with top_n().",
            cure="Use a window over event time: window=holdfast.tumbling(60, on='at'), or leave it out.",
        )
    keys = key_names(by, "top_n()", "Name the key columns: by='symbol'; by=[]: all rows.", needed=False)
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
    key_fields(schema, spec.by)
    for name, _ in spec.order:
        kind = column_type(schema, name, " to order by")
        if pa.types.is_nested(kind) or not has_order(plain(pa.array([], kind)).type):
            raise TopologyError(
                f"Rows cannot be ordered by {name!r} of type {kind}.",
                cure="Use a string, number, boolean, date or timestamp: make one with with_columns(…) before.",
            )
    made = [pa.field(RANK, pa.int32())]
    if spec.window is not None:
        made = [*window_fields(schema, spec.window), *made]
    taken = [field.name for field in made if field.name in schema.names]
    if taken:
        raise TopologyError(
            f"top_n() would make two columns called {', '.join(taken)}.",
            cure="Rename them before, with select(…).",
        )
    return pa.schema([*made, *schema])
