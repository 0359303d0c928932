"""One table cut into pieces that are summed up and merged in any order: what every accumulator must not notice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from holdfast.state.aggregates.aggregation import Aggregation, combine, finish, partial
from holdfast.state.aggregates.function_names import POSITION

KEYS = st.sampled_from(["a", "b", None])
Rows = list[tuple[Any, Any]]
"""(key, value) in the order of their positions."""


def table_of(rows: Rows, kind: pa.DataType) -> pa.Table:
    """The rows with positions: three to a file."""
    numbers = np.arange(len(rows))
    return pa.table(
        {
            "k": pa.array([key for key, _ in rows], pa.string()),
            "v": pa.array([value for _, value in rows], kind, from_pandas=False),
            POSITION[0]: pa.array(numbers // 3),
            POSITION[1]: pa.array(numbers % 3),
        }
    )


def plan_of(function: str | Sequence[str], kind: pa.DataType) -> Aggregation:
    functions = [function] if isinstance(function, str) else function
    schema = pa.schema({"k": pa.string(), "v": kind})
    return Aggregation.plan(("k",), [(name, name, "v") for name in functions], schema)


def merged(plan: Aggregation, table: pa.Table, data: st.DataObject) -> pa.Table:
    """State rows of the table: shuffled, cut into pieces, and these merged two or more at a time."""
    rows = table.num_rows
    table = table.take(pa.array(data.draw(st.permutations(range(rows))), pa.int64()))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=4)))
    pieces = [partial(plan, table[start:end]) for start, end in zip([0, *cuts], [*cuts, rows], strict=True)]
    while len(pieces) > 1:
        size = data.draw(st.integers(2, len(pieces)))
        chosen = data.draw(st.permutations(range(len(pieces))))[:size]
        together = combine(plan, [pieces[i] for i in chosen])
        pieces = [piece for i, piece in enumerate(pieces) if i not in chosen] + [together]
    return pieces[0]


def by_key(plan: Aggregation, state: pa.Table) -> dict[Any, Any]:
    """Result (or results, if there are several) of each key."""
    output = finish(plan, state)
    columns = [output[name].to_pylist() for name, _, _ in plan.aggregates]
    values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return dict(zip(output["k"].to_pylist(), values, strict=True))


def of_keys(rows: Rows) -> dict[Any, list[Any]]:
    """The values of each key, in order, nulls among them."""
    found: dict[Any, list[Any]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


def same(left: Any, right: Any) -> bool:
    """Equality to the bit: NaN is itself, -0.0 is not 0.0."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or (left == right and math.copysign(1, left) == math.copysign(1, right))
    return type(left) is type(right) and left == right
