"""What windows over the rows of a key share, whatever decides where they begin and end: a step's rows beside what is stored
of their keys, and ranges of neighbouring rows merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, fold, lift, single
from holdfast.state.columns.grouping import Bools, Grouping, Runs, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.keyed.lookup import Found, find_rows
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import Segment

SLOT = "__hf_slot"
NUMBER = "__hf_number"
NOTE = "__hf_note"
ROWS = "window_rows"
"""Output column: the rows its key had when the window was emitted."""

MADE = (SLOT, NUMBER, NOTE)
"""Columns that no input has: numbers and notes are put in when they are known."""

Parts = list[pa.Array]
"""What the accumulators of an aggregation keep, a row per state."""

_NONE = -1
_LONG = pa.int64()


class RowWindows(ABC):
    """Windows over the rows of a key, in the order of their positions. State rows are by slot and key, and keep first how
    many rows the key has had, which is the aggregate `ROWS`."""

    aggregation: Aggregation

    @property
    def map(self) -> Aggregation:
        """What the state rows are."""
        return self.aggregation

    @property
    def deciding(self) -> str | None:
        """The input column that decides where windows end, if one does."""
        return None

    @property
    def used(self) -> tuple[str, ...]:
        """The input columns that are needed, but for positions."""
        names = (name for name in self.aggregation.schema.names if name not in MADE)
        return tuple(dict.fromkeys((*([] if self.deciding is None else [self.deciding]), *names)))

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that count."""
        return rows

    @abstractmethod
    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        """Apply a step's rows, at least one, in the order that counts and with the hashes of their keys."""

    def evolved(self, table: pa.Table, what: str) -> pa.Table:
        """State rows of an earlier form."""
        return evolved_sums(table, self.map, what)


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step gives: changed state rows as `keyed_map.advance` takes them; a row per window with slot, key and
    results, in the order in which the windows were completed; the input row that completed each."""

    changed: pa.Table
    results: pa.Table
    completed_by: I64
    touched: Touched


@dataclass(frozen=True, slots=True)
class Touched:
    """The keys of a step: hash, slot and key columns; how many rows each had before, and before its last window began; whether that one
    has ended, so that the next is the last and has no rows; and the step's rows key by key. Of a window that began before the step
    `began` is -1; where windows overlap they count as one that began with the key's first row."""

    keys: pa.Table
    before: I64
    began: I64
    closed: Bools
    grouping: Grouping


@dataclass(frozen=True, slots=True)
class Batch:
    """A step's rows, lifted, by key; and of each key: hash, slot and key columns, what is stored, rows had before."""

    lifted: Parts
    grouping: Grouping
    keys: pa.Table
    heads: Found
    before: I64

    @property
    def runs(self) -> Runs:
        return self.grouping.runs

    def touched(self, began: I64, closed: Bools) -> Touched:
        return Touched(self.keys, self.before, began, closed, self.grouping)

    @property
    def after(self) -> I64:
        """How many rows each key has had with those of the step."""
        return self.before + self.runs.ends - self.runs.starts

    @property
    def numbers(self) -> I64:
        """The place of each row among all rows of its key, from 1, for rows that lie key by key."""
        return np.arange(self.runs.rows) + 1 + self.runs.spread(self.before - self.runs.starts)

    def of_keys(self, key: I64, parts: Parts, schema: pa.Schema) -> pa.Table:
        """State rows of the given keys."""
        keys = self.keys.take(pa.array(key))
        return pa.Table.from_arrays([*(single(column) for column in keys.columns), *parts], schema=schema)


def planned(
    first: Sequence[Aggregate],
    by: Sequence[str],
    aggregates: Sequence[Aggregate],
    schema: pa.Schema,
    note: pa.DataType = _LONG,
) -> Aggregation:
    """By slot and key; `first`, the windows' own, then what is asked for."""
    made = [pa.field(name, kind) for name, kind in zip(MADE, (_LONG, _LONG, note), strict=True)]
    return Aggregation.plan((SLOT, *by), (*first, *aggregates), pa.schema([*schema, *made]))


def batch_of(windows: RowWindows, segments: Sequence[Segment], rows: pa.Table) -> Batch:
    aggregation = windows.aggregation
    zeros = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
    for name in MADE:
        if name in aggregation.schema.names:
            rows = rows.append_column(name, zeros.cast(aggregation.schema.field(name).type))
    lifted, by = lift(aggregation, rows), 1 + len(aggregation.by)
    columns = [single(column) for column in lifted.columns]
    grouping = group_rows(as_int64(columns[0]), columns[1:by])
    keys = lifted.select([HASH_COLUMN, *aggregation.by]).take(pa.array(grouping.first_rows))
    heads = find_rows(segments, keys, windows.map)
    before = np.zeros(keys.num_rows, dtype=np.int64)
    before[heads.rows] = as_int64(heads.values[0])
    return Batch(columns[by:], grouping, keys, heads, before)


def runs_of(*keys: I64) -> Runs:
    """The runs of rows that are alike in all keys."""
    new = np.zeros(len(keys[0]), dtype=np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return Runs(np.flatnonzero(new), len(new))


# --- ranges of neighbouring rows, many at once and overlapping ---------------------------------------------------------


def joined(aggregation: Aggregation, parts: Parts, runs: Runs, low: I64, high: I64) -> Parts:
    """The rows from each `low` to its `high`, both in one run, merged. First those that no range parts are merged: long
    ranges that begin and end near each other share most of theirs."""
    cut = np.zeros(runs.rows + 1, dtype=np.bool_)
    for places in (runs.starts, low, high + 1):
        cut[places] = True
    starts = np.flatnonzero(cut[:-1])
    place = np.cumsum(cut[:-1]) - 1
    pieces = fold(aggregation, parts, Runs(starts, runs.rows))
    first = runs.spread(runs.starts)
    return merged_ranges(aggregation, pieces, place[first][starts], place[low], place[high])


def merged_ranges(aggregation: Aggregation, parts: Parts, first: I64, low: I64, high: I64) -> Parts:
    """The rows from each `low` to its `high` merged: a row per range, without a loop per range.

    `first`: for each row, where the rows of its key begin. A range lies within one key and is not empty.

    By doubling: *spans* have for each row the 1, 2, 4, … rows that end with it, and a range is put together from spans as
    its length is from powers of two. So n rows cost n·log(longest range), however many ranges there are. Nothing is taken
    away again, and rows are merged from left to right: every aggregate function will do."""
    if not len(low):
        return taken(parts, low)
    here, rest, count = np.arange(len(first)), high.copy(), high - low + 1
    spans, width = parts, 1
    found: list[tuple[I64, Parts]] = []
    while True:
        chosen = np.flatnonzero(count & width)
        found.insert(0, (chosen, taken(spans, rest[chosen])))
        rest[chosen] -= width
        if 2 * width > count.max():
            break
        before = np.where(here - width >= first, here - width, _NONE)
        spans = _beside(aggregation, spans, before, spans)
        width *= 2
    window = np.concatenate([chosen for chosen, _ in found])
    order = np.argsort(window, kind="stable")
    together = [pa.concat_arrays(pieces) for pieces in zip(*(piece for _, piece in found), strict=True)]
    starts = np.flatnonzero(np.diff(window[order], prepend=-1))
    return fold(aggregation, taken(together, order), Runs(starts, len(window)))


def taken(parts: Parts, rows: I64) -> Parts:
    """The given rows."""
    at = pa.array(rows)
    return [part.take(at) for part in parts]


def _beside(aggregation: Aggregation, left: Parts, at: I64, right: Parts) -> Parts:
    """Each row of `right` merged with the row `at` of `left` that comes before it, if any."""
    paired = at != _NONE
    ends = np.arange(1, len(at) + 1) + np.cumsum(paired)
    order = np.empty(len(at) + int(paired.sum()), dtype=np.int64)
    order[ends[paired] - 2] = at[paired]
    order[ends - 1] = len(left[0]) + np.arange(len(at))
    both = [pa.concat_arrays(pair) for pair in zip(left, right, strict=True)]
    return fold(aggregation, taken(both, order), Runs(ends - 1 - paired, len(order)))
