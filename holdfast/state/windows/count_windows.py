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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, finish, fold, single
from holdfast.state.columns.arrays import within
from holdfast.state.columns.hashing import HASH_COLUMN, I64, KEY_GROUPS
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows import row_windows
from holdfast.state.windows.row_windows import ROWS, Batch, Parts, RowWindows, Stepped, taken

HEAD = 0
_SLOT_STEP = np.int64(-7046029254386353131 // KEY_GROUPS * KEY_GROUPS)


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
        counted = (ROWS, "count", None)
        return CountWindows(size, every, row_windows.planned([counted], by, aggregates, schema))

    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        batch = row_windows.batch_of(self, segments, rows)
        after = batch.after
        panes = _panes(self, segments, batch, after)
        complete = _complete(self, batch, after, panes)
        schema = self.aggregation.state_schema
        results = finish(self.aggregation, batch.of_keys(complete.key, complete.parts, schema))
        tumbling = self.every == self.size
        began = after // self.size * self.size if tumbling else np.zeros(len(after), dtype=np.int64)
        touched = batch.touched(began, (after == began) & tumbling)
        return Stepped(_changed(self, batch, after, panes), results, complete.last_item, touched)

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

    def unslotted(self, hashes: I64, slots: I64) -> I64:
        """The hashes of the heads of the keys to which slots belong."""
        with np.errstate(over="ignore"):
            return np.asarray(hashes - slots * _SLOT_STEP)

    def head(self, rows: I64) -> I64:
        """The pane that holds the last row of a key that has had `rows`; -1 if there are none."""
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
class _Panes:
    """Neighbouring panes of the step's keys, ascending by key and number; those of a key have no gaps."""

    key: I64
    """Index of the key in the batch."""
    number: I64
    parts: Parts
    """What the accumulators keep, `ROWS` first."""
    last_item: I64
    """The batch's row that came last into each; negative: none did."""

    def take(self, chosen: I64) -> _Panes:
        parts = taken(self.parts, chosen)
        return _Panes(self.key[chosen], self.number[chosen], parts, self.last_item[chosen])


# --- panes ----------------------------------------------------------------------------------------------------------


def _panes(windows: CountWindows, segments: Sequence[Segment], batch: Batch, after: I64) -> _Panes:
    """The panes of the step's rows, and before them the ones that its windows reach back to."""
    runs, heads = batch.runs, batch.heads
    old_key, old_number, old_parts = _recalled(windows, segments, batch, after)
    key = np.concatenate((old_key, heads.rows, runs.ids))
    number = np.concatenate((old_number, windows.head(batch.before[heads.rows]), windows.head(batch.numbers)))
    stored = len(old_key) + len(heads.rows)
    item = np.concatenate((np.arange(-stored, 0), batch.grouping.order))
    order = np.argsort(
        key, kind="stable"
    )  # finished panes, the head, the rows: already in the order of panes
    key, number, item = key[order], number[order], item[order]
    own = row_windows.runs_of(key, number)
    together = zip(old_parts, heads.values, batch.lifted, strict=True)
    parts = taken([pa.concat_arrays(pieces) for pieces in together], item + stored)
    folded = fold(windows.aggregation, parts, own)
    key, number = key[own.starts], number[own.starts]
    folded[0] = pa.array(np.minimum((number + 1) * windows.pane_rows, after[key]))
    return _Panes(key, number, folded, item[own.ends - 1])


def _recalled(
    windows: CountWindows, segments: Sequence[Segment], batch: Batch, after: I64
) -> tuple[I64, I64, Parts]:
    """(key, number, parts) of finished panes before the head, of the keys for which a window is complete now."""
    end = (batch.before // windows.every + 1) * windows.every
    lowest = np.maximum(end // windows.pane_rows - windows.panes, 0)
    count = np.maximum(windows.head(batch.before) - lowest, 0)
    count[after < end] = 0
    key = np.repeat(np.arange(len(count)), count)
    number = lowest[key] + within(count)
    wanted = windows.state_rows(batch.keys.take(pa.array(key)), windows.slots(number), [])
    found = find_rows(segments, wanted, windows.aggregation)
    if len(found.rows) != len(key):
        raise StateError(
            f"{len(key) - len(found.rows)} panes of count windows are missing.",
            cure="Restore an older epoch.",
        )
    return key, number, taken(found.values, np.argsort(found.rows))


def _changed(windows: CountWindows, batch: Batch, after: I64, panes: _Panes) -> pa.Table:
    """The new heads, and the finished panes that later windows can reach back to and that are not kept yet."""
    head = windows.head(after)[panes.key]
    fresh = panes.number >= windows.head(batch.before)[panes.key]
    chosen = np.flatnonzero(fresh & (panes.number > head - windows.panes))
    kept = panes.take(chosen)
    slots = np.where(kept.number == head[chosen], HEAD, windows.slots(kept.number))
    return by_hash(windows.state_rows(batch.keys.take(pa.array(kept.key)), slots, kept.parts))


def by_hash(rows: pa.Table) -> pa.Table:
    """State rows in the order of a segment."""
    return rows.take(pa.array(np.argsort(as_int64(single(rows.column(HASH_COLUMN))), kind="stable")))


# --- windows --------------------------------------------------------------------------------------------------------


def _complete(windows: CountWindows, batch: Batch, after: I64, panes: _Panes) -> _Panes:
    """The windows that the step completed, in order; each has the key and number of its last pane."""
    end = (panes.number + 1) * windows.pane_rows
    done = (end % windows.every == 0) & (end > batch.before[panes.key]) & (end <= after[panes.key])
    with_windows = np.zeros(len(batch.before), dtype=np.bool_)
    with_windows[panes.key[done]] = True
    needed = with_windows[panes.key]
    panes, last = panes.take(np.flatnonzero(needed)), np.flatnonzero(done[needed])
    complete = panes.take(last)
    if windows.panes > 1 and len(last):
        runs = row_windows.runs_of(panes.key)
        low = np.maximum(last - windows.panes + 1, runs.spread(runs.starts)[last])
        parts = row_windows.joined(windows.aggregation, panes.parts, runs, low, last)
        complete = _Panes(complete.key, complete.number, [complete.parts[0], *parts[1:]], complete.last_item)
    return complete.take(np.argsort(complete.last_item))
