"""Functions that keep values: the first, the last, all of them, the different ones; rows for functions of the user.

Order is the order of positions: (ordinal, row) in the one source the rows come from. What is kept carries its
positions, so the result does not depend on how rows were cut into batches or over partitions. Rows that share a
position (branches of one source that overlap and meet again) are ordered by their values, nulls first; only if the
values are of a nested type does the order in which they met decide.

Their input is a struct of the value and its position, as `with_position` makes it.

`collect` keeps a key's values and positions whole, 16 bytes more than the value each, and a step that touches the key
reads and writes them all again: it suits windows, or keys that stay small.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import OperatorFailed
from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.accumulator import Accumulator, Columns, Parts
from holdfast.state.aggregates.extremes import has_order, order_codes
from holdfast.state.aggregates.function_names import TOP, UserFunction
from holdfast.state.columns import arrays
from holdfast.state.columns.from_python import Unfit, column_of
from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64, canonical_key

_PARTS = ["value", "ordinal", "row"]


def with_position(column: pa.Array, ordinals: pa.Array, rows: pa.Array) -> pa.Array:
    """What the functions here take as their column."""
    places = [ordinals.cast(pa.int64()), rows.cast(pa.int64())]
    return pa.StructArray.from_arrays([column, *places], names=_PARTS)


@dataclass(frozen=True, slots=True)
class AtEnd(Accumulator):
    """The value at the smallest or largest position, null if it is null there, as Spark's first and last."""

    kind: pa.DataType
    last: bool

    @property
    def parts(self) -> Parts:
        return [("value", self.kind), ("ordinal", pa.int64()), ("row", pa.int64())]

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return [column.field(place) for place in range(len(_PARTS))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        order = in_order(runs.ids, states)
        rank = np.empty(runs.rows, dtype=np.int64)
        rank[order] = np.arange(runs.rows)
        best = runs.largest(rank if self.last else runs.rows - 1 - rank)
        chosen = pa.array(order[best if self.last else runs.rows - 1 - best])
        return [column.take(chosen) for column in states]


@dataclass(frozen=True, slots=True)
class Collected(Accumulator):
    """The values that are not null, in the order of their positions; an empty list if there are none."""

    kind: pa.DataType

    @property
    def parts(self) -> Parts:
        kinds = (self.kind, pa.int64(), pa.int64())
        return [(name, arrays.list_of(kind)) for name, kind in zip(_PARTS, kinds, strict=True)]

    def lift(self, column: pa.Array, rows: int) -> Columns:
        columns = [column.field(place) for place in range(len(_PARTS))]
        valid = wide_sums.valid_flags(columns[0])
        return [arrays.singletons(part, valid) for part in columns]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return joined_in_order(states, runs, "collect")


def row_parts(kind: pa.DataType) -> Parts:
    """What is kept by functions that keep rows with their positions."""
    kinds = (("rows", kind), ("ordinal", pa.int64()), ("row", pa.int64()))
    return [(name, arrays.list_of(each)) for name, each in kinds]


def lifted_rows(column: pa.Array, rows: int) -> Columns:
    """Each row with its position as a list of its own."""
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


@dataclass(frozen=True, slots=True)
class Custom(Accumulator):
    """A function that the user wrote: of all rows of a group, nulls among them, as Arrow arrays in the order of positions.
    Rows are kept whole; the function is called once when a result is asked for. `kind`: a struct of its columns."""

    output: str
    function: UserFunction
    kind: pa.DataType

    @property
    def parts(self) -> Parts:
        return row_parts(self.kind)

    @property
    def result(self) -> pa.DataType:
        return self.function.result

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return lifted_rows(column, rows)

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return joined_in_order(states, runs, "udaf")

    def finish(self, states: Columns) -> pa.Array:
        sizes = arrays.lengths(states[0])
        rows = states[0].flatten()
        columns = [rows.field(place) for place in range(len(self.kind))]
        starts = (np.cumsum(sizes) - sizes).tolist()
        pairs = zip(starts, sizes.tolist(), strict=True)
        return self._typed([self._called(columns, start, size) for start, size in pairs])

    def _called(self, columns: Columns, start: int, size: int) -> Any:
        if not size:
            return None
        try:
            value = self.function.fn(*(column.slice(start, size) for column in columns))
        except Exception as error:
            raise OperatorFailed(
                f"the aggregate {self.output!r} failed over {size} rows: {type(error).__name__}: {error}"
            ) from error
        return value.as_py() if isinstance(value, pa.Scalar) else value

    def _typed(self, values: Sequence[Any]) -> pa.Array:
        try:
            return column_of(values, pa.field(self.output, self.result))
        except Unfit as error:
            raise OperatorFailed(
                f"the aggregate {self.output!r} gave a value that is no {self.result}: {error}",
                cure="Return one value of the declared type, or None; or declare another type=.",
            ) from error


def row_of(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """The columns that a function is given, side by side in one."""
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields)


@dataclass(frozen=True, slots=True)
class Distinct(Accumulator):
    """The different values, or with `counted` how many there are.

    Kept is the sorted list of the values without repeats, so that the state depends only on which values came. Values
    are the same as keys are: -0.0 is 0.0, every NaN is the one NaN, which stands last. Nulls are left out. The answer is
    exact, and costs accordingly: a step that touches a key reads and writes all its different values again."""

    kind: pa.DataType
    counted: bool

    @property
    def parts(self) -> Parts:
        return [("values", arrays.list_of(self.kind))]

    @property
    def result(self) -> pa.DataType:
        return pa.int64() if self.counted else arrays.list_of(self.kind)

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return [arrays.singletons(canonical_key(column), wide_sums.valid_flags(column))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        arrays.refuse_running(runs, "count_distinct" if self.counted else "collect_set")
        values, run = states[0].flatten(), arrays.run_of_elements(states[0], runs)
        order, firsts = arrays.unique_in_runs(run, order_codes(values))
        kept = order[firsts]
        return [arrays.packed_by_run(values.take(pa.array(kept)), run[kept], runs)]

    def finish(self, states: Columns) -> pa.Array:
        return pa.array(arrays.lengths(states[0])) if self.counted else states[0]


Order = tuple[tuple[str, bool], ...]
"""Columns and whether each descends, the one that counts most first."""


def top_name(count: int, order: Order) -> str:
    """The name of the function that keeps the first `count` rows."""
    return f"{TOP}{json.dumps([count, [list(column) for column in order]])}]"


def top_of(function: str, kind: pa.DataType) -> Top | None:
    """The function with that name over rows of type `kind`; None if it is another."""
    if not function.startswith(TOP):
        return None
    count, order = json.loads(function[len(TOP) : -1])
    return Top(kind, count, tuple((name, descending) for name, descending in order))


@dataclass(frozen=True, slots=True)
class Top(Accumulator):
    """The first `count` rows in an order: that of some columns, each ascending or descending; where they are equal, that
    of positions. Nulls come last in either direction: a row without a score is no better than one that has a score.
    `kind`: a struct, the row."""

    kind: pa.DataType
    count: int
    order: Order

    @property
    def parts(self) -> Parts:
        return row_parts(self.kind)

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return lifted_rows(column, rows)

    def fold(self, states: Columns, runs: Runs) -> Columns:
        arrays.refuse_running(runs, "top")
        run = arrays.run_of_elements(states[0], runs)
        elements = [state.flatten() for state in states]
        order = np.lexsort([*self._keys(*elements), run]).astype(np.int64)
        sizes = np.bincount(run, minlength=len(runs.starts))
        best = pa.array(order[arrays.within(sizes) < self.count])
        kept = np.minimum(sizes, self.count)
        return [arrays.packed(part.take(best), kept) for part in elements]

    def _keys(self, rows: pa.Array, ordinals: pa.Array, numbers: pa.Array) -> list[I64 | Bools]:
        """What to order by; the last counts most."""
        keys: list[I64 | Bools] = [arrays.ints(numbers), arrays.ints(ordinals)]
        for name, descending in reversed(self.order):
            column = rows.field(name)
            valid = wide_sums.valid_flags(column)
            codes = order_codes(column)
            keys += [np.where(valid, ~codes if descending else codes, 0), ~valid]
        return keys


def changed_lists(before: Sequence[pa.Array], after: Sequence[pa.Array]) -> Bools:
    """Which rows differ between two sets of columns of lists of numbers; those of a set have equal lengths."""
    sizes = arrays.lengths(before[0])
    differ: Bools = sizes != arrays.lengths(after[0])
    same = np.flatnonzero(~differ)
    for old, new in zip(before, after, strict=True):
        at = pa.array(same)
        unequal = arrays.ints(old.take(at).flatten()) != arrays.ints(new.take(at).flatten())
        differ[np.repeat(same, sizes[same])[unequal]] = True
    return differ


def exploded(lists: pa.Array) -> tuple[I64, I64, pa.Array]:
    """(the list each element is in, its place there from 1 on, the elements)."""
    sizes = arrays.lengths(lists)
    return np.repeat(np.arange(len(sizes)), sizes), arrays.within(sizes) + 1, lists.flatten()
