"""Aggregates over sliding windows by an attribute: after every n-th row of a key, over its rows near enough to the newest.

A row is as far as the largest attribute up to it: of an attribute that never falls, its own. A window holds the rows
that are not further than a delta behind. So windows are the last rows of a key, and what has fallen out stays out. The
state is a keyed map (keyed_map.py) with one row per key: how many rows it has had, and lists of how far the rows are
that the next window may hold and of what the aggregates make of each alone. A step that touches a key reads and writes
its rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, finish, single
from holdfast.state.columns import arrays
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.row_evolution import evolved, of_nothing
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows import row_windows
from holdfast.state.windows.attributes import Attribute, Climb, Numbers
from holdfast.state.windows.row_windows import NUMBER, ROWS, Batch, Parts, RowWindows, Stepped, taken

FAR = "__hf_far"


@dataclass(frozen=True)
class KeptRows(Aggregation):
    """State rows that hold lists: a key's rows, lifted."""

    unit: pa.DataType

    @cached_property
    def state_schema(self) -> pa.Schema:
        single_rows = Aggregation(self.by, self.aggregates, self.schema).state_schema
        kept = [single_rows.field(i) for i in range(1 + len(self.by), len(single_rows))]
        lists = [pa.field(field.name, arrays.list_of(field.type)) for field in kept[1:]]
        far = pa.field(FAR, arrays.list_of(self.unit))
        return pa.schema([*(single_rows.field(i) for i in range(1 + len(self.by))), kept[0], far, *lists])

    def __getstate__(self) -> tuple[object, ...]:
        return (*super().__getstate__(), self.unit)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        super().__setstate__(state[:3])
        object.__setattr__(self, "unit", state[3])


@dataclass(frozen=True)
class DeltaWindows(RowWindows):
    """Windows over the rows near enough to the newest, one every `every` rows, and what is computed over them."""

    attribute: Attribute
    every: int
    aggregation: Aggregation
    """By slot, which is 0, and key; the first aggregate is `ROWS`."""

    @staticmethod
    def plan(
        attribute: Attribute,
        every: int,
        by: Sequence[str],
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
    ) -> DeltaWindows:
        counted = (ROWS, "max", NUMBER)
        return DeltaWindows(attribute, every, row_windows.planned([counted], by, aggregates, schema))

    @property
    def deciding(self) -> str:
        return self.attribute.column

    @cached_property
    def map(self) -> Aggregation:
        """What the state rows are."""
        plan = self.aggregation
        return KeptRows(plan.by, plan.aggregates, plan.schema, self.attribute.unit)

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that count."""
        return self.attribute.present(rows)

    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        batch = row_windows.batch_of(self, segments, rows)
        kept = _kept(self, batch, self.attribute.values(rows))
        runs = row_windows.runs_of(kept.key)
        climb = Climb(kept.values, runs)
        far = climb.largest
        done = np.flatnonzero((kept.item >= 0) & (kept.number % self.every == 0))
        low = climb.first_from(kept.key[done], self.attribute.below(far[done]))
        parts = row_windows.joined(self.aggregation, kept.parts, runs, low, done)
        parts[0] = pa.array(kept.number[done])
        complete = batch.of_keys(kept.key[done], parts, self.aggregation.state_schema)
        last = runs.ends - 1
        oldest = climb.first_from(np.arange(len(last)), self.attribute.below(far[last]))
        sizes = last - oldest + 1
        rows_kept = taken([pa.array(far), *kept.parts[1:]], np.repeat(oldest, sizes) + arrays.within(sizes))
        lists = [arrays.packed(part, sizes) for part in rows_kept]
        counted = pa.array(kept.number[last])
        changed = batch.of_keys(np.arange(len(last)), [counted, *lists], self.map.state_schema)
        order = np.argsort(kept.item[done])
        results = finish(self.aggregation, complete).take(pa.array(order))
        nothing = np.zeros(batch.keys.num_rows, dtype=np.int64)
        return Stepped(changed, results, kept.item[done][order], batch.touched(nothing, nothing > 0))

    def evolved(self, table: pa.Table, what: str) -> pa.Table:
        """State rows of an earlier form: for an aggregate that is new, the rows kept from before are as good as none."""
        if table.schema.equals(self.map.state_schema):
            return table
        sizes = arrays.lengths(single(table.column(FAR)))
        nothing = of_nothing(self.aggregation, int(sizes.sum()))
        new = {name: arrays.packed(column, sizes) for name, column in nothing.items()}
        return evolved(table, self.map.state_schema, new, what)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The rows that are kept and those of the step, key by key and in order. `item`: which row of the step each is;
    negative: a kept one. `number`: its place among the rows of its key, from 1, for rows of the step."""

    key: I64
    item: I64
    number: I64
    values: Numbers
    parts: Parts


def _kept(windows: DeltaWindows, batch: Batch, fresh: Numbers) -> _Kept:
    """`fresh`: the attribute of the step's rows."""
    heads = batch.heads
    sizes = arrays.lengths(heads.values[1])
    stored = int(sizes.sum())
    key = np.concatenate((np.repeat(heads.rows, sizes), batch.runs.ids))
    order = np.argsort(key, kind="stable")
    item = np.concatenate((np.arange(-stored, 0), batch.grouping.order))[order]
    number = np.concatenate((np.zeros(stored, dtype=np.int64), batch.numbers))[order]
    old_far, *old_parts = [column.flatten() for column in heads.values[1:]]
    both = [pa.concat_arrays(pair) for pair in zip(old_parts, batch.lifted[1:], strict=True)]
    far = single(pa.chunked_array([old_far, pa.array(fresh, windows.attribute.unit)]))
    values, *parts = taken([far, *both], item + stored)
    return _Kept(key[order], item, number, values.to_numpy(zero_copy_only=False), [pa.array(number), *parts])
