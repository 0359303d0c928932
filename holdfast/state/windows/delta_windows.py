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

from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, finish, fold, lift, single
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Runs, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.columns.range_merge import Parts, merged_ranges, taken
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.row_evolution import evolved, of_nothing
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.attributes import Attribute, Climb, Numbers
from holdfast.state.windows.count_windows import ROWS, SLOT, RowWindows, Stepped
from holdfast.state.windows.run_windows import NUMBER

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
        more = [pa.field(SLOT, pa.int64()), pa.field(NUMBER, pa.int64())]
        computed = ((ROWS, "max", NUMBER), *aggregates)
        aggregation = Aggregation.plan((SLOT, *by), computed, pa.schema([*schema, *more]))
        return DeltaWindows(attribute, every, aggregation)

    @cached_property
    def used(self) -> tuple[str, ...]:
        """The input columns that are needed, but for positions."""
        names = [n for n in self.aggregation.schema.names if n not in (SLOT, NUMBER)]
        return tuple(dict.fromkeys([self.attribute.column, *names]))

    @cached_property
    def map(self) -> Aggregation:
        """What the state rows are."""
        plan = self.aggregation
        return KeptRows(plan.by, plan.aggregates, plan.schema, self.attribute.unit)

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that count."""
        return self.attribute.present(rows)

    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        batch = _batch(self, segments, rows)
        runs = batch.runs
        climb = Climb(batch.values, runs)
        far = climb.largest
        done = np.flatnonzero((batch.item >= 0) & (batch.number % self.every == 0))
        low = climb.first_from(batch.key[done], self.attribute.below(far[done]))
        joined = _joined(self.aggregation, batch.parts, runs, low, done)
        joined[0] = pa.array(batch.number[done])
        keys = batch.keys.take(pa.array(batch.key[done]))
        columns = [*(single(column) for column in keys.columns), *joined]
        results = finish(
            self.aggregation, pa.Table.from_arrays(columns, schema=self.aggregation.state_schema)
        )
        order = np.argsort(batch.item[done])
        last = np.append(runs.starts[1:], runs.rows) - 1
        oldest = climb.first_from(np.arange(len(last)), self.attribute.below(far[last]))
        changed = _changed(self, batch, pa.array(far), oldest, last)
        return Stepped(changed, results.take(pa.array(order)), batch.item[done][order])

    def evolved(self, table: pa.Table, what: str) -> pa.Table:
        """State rows of an earlier form: for an aggregate that is new, the rows kept from before are as good as none."""
        if table.schema.equals(self.map.state_schema):
            return table
        sizes = arrays.lengths(single(table.column(FAR)))
        nothing = of_nothing(self.aggregation, int(sizes.sum()))
        new = {name: arrays.packed(column, sizes) for name, column in nothing.items()}
        return evolved(table, self.map.state_schema, new, what)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The rows that are kept and those of the step, key by key and in order. `item`: which row of the step each is;
    negative: a kept one. `number`: the how-manieth of its key, for rows of the step."""

    keys: pa.Table
    key: I64
    item: I64
    number: I64
    values: Numbers
    parts: Parts

    @property
    def runs(self) -> Runs:
        return Runs(np.flatnonzero(np.append(True, self.key[1:] != self.key[:-1])), len(self.key))


def _batch(windows: DeltaWindows, segments: Sequence[Segment], rows: pa.Table) -> _Batch:
    aggregation, attribute = windows.aggregation, windows.attribute
    zeros = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
    lifted = lift(aggregation, rows.append_column(SLOT, zeros).append_column(NUMBER, zeros))
    columns = [single(column) for column in lifted.columns]
    by = 1 + len(aggregation.by)
    grouping = group_rows(as_int64(columns[0]), columns[1:by])
    keys = lifted.select([HASH_COLUMN, *aggregation.by]).take(pa.array(grouping.first_rows))
    heads = find_rows(segments, keys, windows.map)
    before = np.zeros(keys.num_rows, dtype=np.int64)
    before[heads.rows] = as_int64(heads.values[0])
    own = Runs(grouping.starts, rows.num_rows)
    number = np.arange(own.rows) + 1 + own.spread(before - own.starts)
    sizes = arrays.lengths(heads.values[1])
    stored = int(sizes.sum())
    key = np.concatenate((np.repeat(heads.rows, sizes), own.ids))
    order = np.argsort(key, kind="stable")
    item = np.concatenate((np.arange(-stored, 0), grouping.order))[order]
    kept = [column.flatten() for column in heads.values[1:]]
    far = [kept[0], pa.array(attribute.values(rows), attribute.unit)]
    parts = [pa.concat_arrays(pair) for pair in zip(kept[1:], columns[by + 1 :], strict=True)]
    at = pa.array(item + stored)
    values = single(pa.chunked_array(far)).take(at).to_numpy(zero_copy_only=False)
    numbers = np.concatenate((np.zeros(stored, dtype=np.int64), number))[order]
    counted = [pa.array(numbers), *(part.take(at) for part in parts)]
    return _Batch(keys, key[order], item, numbers, values, counted)


def _joined(aggregation: Aggregation, parts: Parts, runs: Runs, low: I64, high: I64) -> Parts:
    """The rows from each `low` to its `high`, merged. First those that no window parts are merged."""
    first = runs.spread(runs.starts)
    cut = np.zeros(runs.rows + 1, dtype=np.bool_)
    for places in (runs.starts, low, high + 1):
        cut[places] = True
    starts = np.flatnonzero(cut[:-1])
    place = np.cumsum(cut[:-1]) - 1
    pieces = fold(aggregation, parts, Runs(starts, runs.rows))
    return merged_ranges(aggregation, pieces, place[first][starts], place[low], place[high])


def _changed(windows: DeltaWindows, batch: _Batch, far: pa.Array, oldest: I64, last: I64) -> pa.Table:
    """The new state row of each key: its rows from the oldest that a later window may hold."""
    sizes = last - oldest + 1
    rows = np.repeat(oldest - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
    lists = [arrays.packed(part, sizes) for part in taken([far, *batch.parts[1:]], rows)]
    counted = pa.array(batch.number[last])
    columns = [*(single(column) for column in batch.keys.columns), counted, *lists]
    return pa.Table.from_arrays(columns, schema=windows.map.state_schema)
