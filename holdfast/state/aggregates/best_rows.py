"""The best rows of a key, as an aggregate function: whole rows are kept, in order, at most n of them.

The order is that of some columns, each ascending or descending; where they are equal, that of positions. Nulls come
last in either direction: a row without a score is no better than one that has a score. Numbers, strings and the rest
are ordered as in extremes.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.accumulator import Accumulator, Columns, Parts
from holdfast.state.aggregates.extremes import order_codes
from holdfast.state.aggregates.function_names import TOP
from holdfast.state.aggregates.ordered_values import lifted_rows, row_parts
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64

Order = tuple[tuple[str, bool], ...]
"""Columns and whether each descends, the one that counts most first."""


def top_name(count: int, order: Order) -> str:
    """The name of the function that keeps so many rows."""
    return f"{TOP}{json.dumps([count, [list(column) for column in order]])}]"


def top_of(function: str, kind: pa.DataType) -> Top | None:
    """The function with that name over rows of type `kind`; None if it is another."""
    if not function.startswith(TOP):
        return None
    count, order = json.loads(function[len(TOP) : -1])
    return Top(kind, count, tuple((name, descending) for name, descending in order))


@dataclass(frozen=True, slots=True)
class Top(Accumulator):
    """The first `count` rows in an order. `kind`: a struct, the row. Its input has positions: ordered_values.py."""

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
