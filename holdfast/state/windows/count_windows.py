"""Aggregates over count windows: the last `size` rows of a key, after every `every`-th row of the key.

A *pane* is `gcd(size, every)` consecutive rows of one key; windows consist of whole panes, so a row is summed up once.
The state is a keyed map (keyed_map.py) whose keys are (slot, key), a row per slot:

    slot 0               the *head*: the pane that holds the key's last row, and how many rows the key has had
    slots 1 … panes − 1  a ring of the finished panes before it; a new one takes the place of the oldest

Invariants:
- `ROWS` of a state row is the number of rows the key had when the pane's last row came: in the head, all there were.
- Of a key with n rows the head is pane (n − 1) // pane_rows; each pane a later window can reach back to is in its slot.
  So slots are found by arithmetic, a key never has more than size / pane_rows state rows, and nothing has to be removed.
- A slot's hash lies in the key group of its key: whoever deals out the state by hashes keeps a key together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, finish, fold, lift, single
from holdfast.state.columns.grouping import Grouping, Runs, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64, KEY_GROUPS
from holdfast.state.columns.range_merge import Parts, merged_ranges, taken
from holdfast.state.keyed.lookup import Found, find_rows
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import Segment

SLOT = "__hf_slot"
ROWS = "window_rows"
"""Output column: the rows its key had when the window was emitted."""

HEAD = 0
_SLOT_STEP = np.int64(-7046029254386353131 // KEY_GROUPS * KEY_GROUPS)


class RowWindows(ABC):
    """Windows over the rows of a key, in the order of their positions."""

    aggregation: Aggregation

    @property
    def map(self) -> Aggregation:
        """What the state rows are."""
        return self.aggregation

    @property
    @abstractmethod
    def used(self) -> tuple[str, ...]:
        """The input columns that are needed, but for positions."""

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that count."""
        return rows

    @abstractmethod
    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        """Apply a step's rows, at least one, in the order that counts and with the hashes of their keys."""

    def evolved(self, table: pa.Table, what: str) -> pa.Table:
        """State rows of an earlier form."""
        return evolved_sums(table, self.map, what)


@dataclass(frozen=True)
class CountWindows(RowWindows):
    """Windows of the last `size` rows of a key, one every `every` rows, and what is computed over them."""

    size: int
    every: int
    aggregation: Aggregation
    """By slot and key; the first aggregate is `ROWS`."""

    @staticmethod
    def plan(
        size: int, every: int, by: Sequence[str], aggregates: Sequence[Aggregate], schema: pa.Schema
    ) -> CountWindows:
        widened = schema.append(pa.field(SLOT, pa.int64()))
        counted = ((ROWS, "count", None), *aggregates)
        return CountWindows(size, every, Aggregation.plan((SLOT, *by), counted, widened))

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(name for name in self.aggregation.schema.names if name != SLOT)

    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        return step(self, segments, rows)

    @cached_property
    def pane_rows(self) -> int:
        return math.gcd(self.size, self.every)

    @cached_property
    def panes(self) -> int:
        """Of one window."""
        return self.size // self.pane_rows

    def slots(self, panes: I64) -> I64:
        """Where finished panes are kept."""
        return 1 + panes % max(self.panes - 1, 1)

    def head(self, rows: I64) -> I64:
        """The pane that holds the last of so many rows of a key; -1 if there are none."""
        return (rows - 1) // self.pane_rows

    def state_rows(self, keys: pa.Table, slots: I64, parts: Parts) -> pa.Table:
        """State rows of slots. `keys`: hash, slot and key columns of the heads of their keys."""
        with np.errstate(over="ignore"):
            hashes = as_int64(single(keys.column(HASH_COLUMN))) + slots * _SLOT_STEP
        columns = [
            pa.array(hashes),
            pa.array(slots),
            *(single(column) for column in keys.columns[2:]),
            *parts,
        ]
        schema = self.aggregation.state_schema
        return pa.Table.from_arrays(columns, schema=pa.schema([schema.field(i) for i in range(len(columns))]))


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step gives: changed state rows as `compaction.advance` takes them; a row per window with slot, key and
    results, in the order in which the windows were completed; the input row that completed each."""

    changed: pa.Table
    results: pa.Table
    completed_by: I64


@dataclass(frozen=True, slots=True)
class _Batch:
    """The step's rows, lifted, and their keys: a state row of each for look-ups, rows had before and after."""

    lifted: Parts
    grouping: Grouping
    keys: pa.Table
    heads: Found
    before: I64
    after: I64

    @property
    def runs(self) -> Runs:
        return Runs(self.grouping.starts, len(self.grouping.order))


@dataclass(frozen=True, slots=True)
class _Panes:
    """Neighbouring panes of the step's keys, ascending by key and number; those of a key have no gaps."""

    key: I64
    """Index of the key in the batch."""
    number: I64
    parts: Parts
    """What the accumulators keep, `ROWS` first."""
    last_item: I64
    """The batch's row that came last into each; negative: none did."""

    @property
    def first(self) -> I64:
        """The index of the first pane of the same key, for each pane."""
        new = np.flatnonzero(np.append(True, self.key[1:] != self.key[:-1]))
        return Runs(new, len(self.key)).spread(new)

    def take(self, chosen: I64) -> _Panes:
        parts = taken(self.parts, chosen)
        return _Panes(self.key[chosen], self.number[chosen], parts, self.last_item[chosen])


def step(windows: CountWindows, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
    """Apply a step's rows, at least one, in the order that counts and with the hashes of their keys."""
    batch = _batch(windows, segments, rows)
    panes = _panes(windows, segments, batch)
    complete = _complete(windows, batch, panes)
    results = finish(windows.aggregation, _state_rows(windows, batch, complete, np.zeros_like(complete.key)))
    return Stepped(_changed(windows, batch, panes), results, complete.last_item)


def _batch(windows: CountWindows, segments: Sequence[Segment], rows: pa.Table) -> _Batch:
    aggregation = windows.aggregation
    lifted = lift(aggregation, rows.append_column(SLOT, pa.array(np.full(rows.num_rows, HEAD))))
    columns = [single(column) for column in lifted.columns]
    by = 1 + len(aggregation.by)
    grouping = group_rows(as_int64(columns[0]), columns[1:by])
    keys = lifted.select([HASH_COLUMN, *aggregation.by]).take(pa.array(grouping.first_rows))
    heads = find_rows(segments, keys, aggregation)
    before = np.zeros(keys.num_rows, dtype=np.int64)
    before[heads.rows] = as_int64(heads.values[0])
    after = before + np.diff(grouping.starts, append=rows.num_rows)
    return _Batch(columns[by:], grouping, keys, heads, before, after)


# --- panes ----------------------------------------------------------------------------------------------------------


def _panes(windows: CountWindows, segments: Sequence[Segment], batch: _Batch) -> _Panes:
    """The panes of the step's rows, and before them the ones that its windows reach back to."""
    runs, heads = batch.runs, batch.heads
    old_key, old_number, old_parts = _recalled(windows, segments, batch)
    row_number = np.arange(runs.rows) + runs.spread(batch.before - runs.starts)
    key = np.concatenate((old_key, heads.rows, runs.ids))
    number = np.concatenate(
        (old_number, windows.head(batch.before[heads.rows]), row_number // windows.pane_rows)
    )
    stored = len(old_key) + len(heads.rows)
    item = np.concatenate((np.arange(-stored, 0), batch.grouping.order))
    order = np.argsort(
        key, kind="stable"
    )  # finished panes, the head, the rows: already in the order of panes
    key, number, item = key[order], number[order], item[order]
    starts = np.flatnonzero(np.append(True, (key[1:] != key[:-1]) | (number[1:] != number[:-1])))
    source = pa.array(item + stored)
    together = zip(old_parts, heads.values, batch.lifted, strict=True)
    parts = [pa.concat_arrays(pieces).take(source) for pieces in together]
    folded = fold(windows.aggregation, parts, Runs(starts, len(key)))
    last_item = item[np.append(starts[1:], len(key)) - 1]
    key, number = key[starts], number[starts]
    folded[0] = pa.array(np.minimum((number + 1) * windows.pane_rows, batch.after[key]))
    return _Panes(key, number, folded, last_item)


def _recalled(windows: CountWindows, segments: Sequence[Segment], batch: _Batch) -> tuple[I64, I64, Parts]:
    """(key, number, parts) of finished panes before the head, of the keys for which a window is complete now."""
    end = (batch.before // windows.every + 1) * windows.every
    lowest = np.maximum(end // windows.pane_rows - windows.panes, 0)
    count = np.maximum(windows.head(batch.before) - lowest, 0)
    count[batch.after < end] = 0
    key = np.repeat(np.arange(len(count)), count)
    number = lowest[key] + np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
    wanted = windows.state_rows(batch.keys.take(pa.array(key)), windows.slots(number), [])
    found = find_rows(segments, wanted, windows.aggregation)
    if len(found.rows) != len(key):
        raise StateError(
            f"{len(key) - len(found.rows)} panes of count windows are missing.",
            cure="Restore an older epoch.",
        )
    return key, number, taken(found.values, np.argsort(found.rows))


def _state_rows(windows: CountWindows, batch: _Batch, panes: _Panes, slots: I64) -> pa.Table:
    return windows.state_rows(batch.keys.take(pa.array(panes.key)), slots, panes.parts)


def _changed(windows: CountWindows, batch: _Batch, panes: _Panes) -> pa.Table:
    """The new heads, and the finished panes that later windows can reach back to and that are not kept yet."""
    head = windows.head(batch.after)[panes.key]
    fresh = panes.number >= windows.head(batch.before)[panes.key]
    kept = panes.take(np.flatnonzero(fresh & (panes.number > head - windows.panes)))
    is_head = kept.number == windows.head(batch.after)[kept.key]
    slots = np.where(is_head, HEAD, windows.slots(kept.number))
    return by_hash(_state_rows(windows, batch, kept, slots))


def by_hash(rows: pa.Table) -> pa.Table:
    """State rows in the order of a segment."""
    return rows.take(pa.array(np.argsort(as_int64(single(rows.column(HASH_COLUMN))), kind="stable")))


# --- windows --------------------------------------------------------------------------------------------------------


def _complete(windows: CountWindows, batch: _Batch, panes: _Panes) -> _Panes:
    """The windows that the step completed, in order; each has the key and number of its last pane."""
    end = (panes.number + 1) * windows.pane_rows
    done = (end % windows.every == 0) & (end > batch.before[panes.key]) & (end <= batch.after[panes.key])
    with_windows = np.zeros(len(batch.before), dtype=np.bool_)
    with_windows[panes.key[done]] = True
    needed = with_windows[panes.key]
    panes, last = panes.take(np.flatnonzero(needed)), np.flatnonzero(done[needed])
    complete = panes.take(last)
    if windows.panes > 1 and len(last):
        joined = _joined(windows.aggregation, panes, last, windows.panes)
        complete = _Panes(complete.key, complete.number, [complete.parts[0], *joined[1:]], complete.last_item)
    return complete.take(np.argsort(complete.last_item))


def _joined(aggregation: Aggregation, panes: _Panes, last: I64, length: int) -> Parts:
    """For each pane in `last`, ascending, the `length` panes that end with it, or as many as its key has, merged.

    First panes that no window parts are merged: long windows that begin and end near each other share most of theirs.
    """
    first = panes.first
    begin = np.maximum(last - length + 1, first[last])
    cut = np.zeros(len(first) + 1, dtype=np.bool_)
    for places in (first, begin, last + 1):
        cut[places] = True
    starts = np.flatnonzero(cut[:-1])
    place = np.cumsum(cut[:-1]) - 1
    pieces = fold(aggregation, panes.parts, Runs(starts, len(first)))
    return merged_ranges(aggregation, pieces, place[first][starts], place[begin], place[last])
