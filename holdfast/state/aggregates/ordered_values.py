"""Functions of the order of rows: the first value, the last, all of them.

Order is the order of positions: (ordinal, row) in the one source the rows come from. What is kept carries its
positions, so the result does not depend on how rows were cut into batches or over partitions. Rows that share a
position (branches of one source that overlap and meet again) are ordered by their values, nulls first; only if the
values are of a nested type does the order in which they met decide.

Their input is a struct of the value and its position, as `with_position` makes it.

`collect` keeps a key's values and positions whole, 16 bytes more than the value each, and a step that touches the key
reads and writes them all again: it suits windows, or keys that stay small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.extremes import has_order, order_codes
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import I64

Columns = list[pa.Array]

_PARTS = ["value", "ordinal", "row"]


def with_position(column: pa.Array, ordinals: pa.Array, rows: pa.Array) -> pa.Array:
    """What the functions here take as their column."""
    places = [ordinals.cast(pa.int64()), rows.cast(pa.int64())]
    return pa.StructArray.from_arrays([column, *places], names=_PARTS)


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The value at the smallest or largest position, null if it is null there, as Spark's first and last."""

    kind: pa.DataType
    last: bool

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [("value", self.kind), ("ordinal", pa.int64()), ("row", pa.int64())]

    @property
    def result(self) -> pa.DataType:
        return self.kind

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        assert column is not None
        return [column.field(place) for place in range(len(_PARTS))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        order = in_order(runs.ids, states)
        rank = np.empty(runs.rows, dtype=np.int64)
        rank[order] = np.arange(runs.rows)
        best = runs.largest(rank if self.last else runs.rows - 1 - rank)
        chosen = pa.array(order[best if self.last else runs.rows - 1 - best])
        return [column.take(chosen) for column in states]

    def finish(self, states: Columns) -> pa.Array:
        return states[0]


@dataclass(frozen=True, slots=True)
class Collected:
    """The values that are not null, in the order of their positions; an empty list if there are none."""

    kind: pa.DataType

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        kinds = (self.kind, pa.int64(), pa.int64())
        return [(name, arrays.list_of(kind)) for name, kind in zip(_PARTS, kinds, strict=True)]

    @property
    def result(self) -> pa.DataType:
        return arrays.list_of(self.kind)

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        assert column is not None
        columns = [column.field(place) for place in range(len(_PARTS))]
        valid = wide_sums.valid_flags(columns[0])
        return [arrays.singletons(part, valid) for part in columns]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return joined_in_order(states, runs, "collect")

    def finish(self, states: Columns) -> pa.Array:
        return states[0]


def row_parts(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """What is kept by functions that keep rows with their positions."""
    kinds = (("rows", kind), ("ordinal", pa.int64()), ("row", pa.int64()))
    return [(name, arrays.list_of(each)) for name, each in kinds]


def lifted_rows(column: pa.Array | None, rows: int) -> Columns:
    """Each row with its position as a list of its own."""
    assert column is not None
    ones = np.ones(rows, dtype=np.int64)
    return [arrays.packed(column.field(part), ones) for part in range(3)]


def joined_in_order(states: Columns, runs: Runs, function: str) -> Columns:
    """The lists of each run as one, in the order of positions."""
    arrays.refuse_running(runs, function)
    run = arrays.run_of_elements(states[0], runs)
    elements = [state.flatten() for state in states]
    order = pa.array(in_order(run, elements))
    return [arrays.packed_by_run(part.take(order), run, runs) for part in elements]


def in_order(run: I64, columns: Columns) -> I64:
    """The rows (value, ordinal, row) ordered by run, then position, then value."""
    keys = [arrays.ints(columns[2]), arrays.ints(columns[1]), run]
    order = np.arange(len(run)) if _ascend(keys) else np.lexsort(keys).astype(np.int64)
    same = np.ones(max(len(run) - 1, 0), dtype=np.bool_)
    for key in keys:
        ordered = key[order]
        same &= ordered[1:] == ordered[:-1]
    if not same.any() or not has_order(columns[0].type):
        return order
    valid = wide_sums.valid_flags(columns[0])
    return np.lexsort((np.where(valid, order_codes(columns[0]), 0), valid, *keys)).astype(np.int64)


def _ascend(keys: list[I64]) -> bool:
    """Whether the rows ascend by the keys, the last of which counts most."""
    ascends = np.ones(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    for key in keys:
        ascends = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & ascends)
    return bool(ascends.all())


def has_values(kind: pa.DataType) -> bool:
    """Whether values of the type can be kept: all but the type that has only null."""
    return not pa.types.is_null(kind)
