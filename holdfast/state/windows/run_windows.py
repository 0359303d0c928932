"""Aggregates over windows that are runs of a key's rows, one behind the other.

Either a window ends before the first row whose attribute exceeds that of the window's first row by more than a delta;
or it ends with a row that is marked as an end. The state is a keyed map (keyed_map.py) with one row per key, its last
window: `ROWS`, how many rows the key has had, and `NOTE`, the attribute of the window's first row, or 1 if it has ended.

With a delta only records matter: a row that begins a window exceeds all rows of its key before it. So the row that ends
a window is found in the largest values so far, which ascend, whether or not the attribute does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, finish, fold, single
from holdfast.state.columns.arrays import floats
from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows import row_windows
from holdfast.state.windows.attributes import Attribute, Climb, Numbers
from holdfast.state.windows.row_windows import NOTE, NUMBER, ROWS, Batch, Parts, RowWindows, Stepped, taken

_NUMBER_PART, _NOTE_PART = 0, 1


@dataclass(frozen=True)
class RunWindows(RowWindows):
    """`ends`: the attribute that must not go too far, or the column that marks ends."""

    ends: Attribute | str
    aggregation: Aggregation
    """By slot, which is 0, and key; the first aggregates are `ROWS` and `NOTE`."""

    @staticmethod
    def plan(
        ends: Attribute | str, by: Sequence[str], aggregates: Sequence[Aggregate], schema: pa.Schema
    ) -> RunWindows:
        note = ends.unit if isinstance(ends, Attribute) else pa.int64()
        first = [(ROWS, "max", NUMBER), (NOTE, "max", NOTE)]
        return RunWindows(ends, row_windows.planned(first, by, aggregates, schema, note))

    @property
    def deciding(self) -> str:
        return self.ends.column if isinstance(self.ends, Attribute) else self.ends

    def present(self, rows: pa.Table) -> pa.Table:
        return self.ends.present(rows) if isinstance(self.ends, Attribute) else rows

    def step(self, segments: Sequence[Segment], rows: pa.Table) -> Stepped:
        batch = row_windows.batch_of(self, segments, rows)
        if isinstance(self.ends, Attribute):
            begins, notes = _by_delta(self.ends, rows, batch)
            runs = _runs(self, batch, begins, notes)
            closed = np.zeros(batch.keys.num_rows, dtype=np.bool_)
            done = np.flatnonzero(~runs.is_last)
            completed_by = runs.first_item[done + 1]
        else:
            begins, notes = _by_marks(self.ends, rows, batch)
            runs = _runs(self, batch, begins, notes)
            ended = _in_input_order(batch, notes) == 1
            closed = ended[runs.last_item[runs.is_last]]
            done = np.flatnonzero((runs.last_item >= 0) & ended[runs.last_item])
            completed_by = runs.last_item[done]
        order = np.argsort(completed_by)
        complete, open_ = (
            batch.of_keys(runs.key[rows], taken(runs.parts, rows), self.aggregation.state_schema)
            for rows in (done[order], np.flatnonzero(runs.is_last))
        )
        results = finish(self.aggregation, complete)
        first = runs.first_item[runs.is_last]
        began = np.where(first >= 0, _in_input_order(batch, batch.numbers)[first] - 1, -1)
        touched = batch.touched(np.where(closed, batch.after, began), closed)
        return Stepped(open_, results.drop_columns([NOTE]), completed_by[order], touched)


def _noted(batch: Batch, notes: Numbers, otherwise: float) -> Numbers:
    """The stored note of each key."""
    found = np.full(batch.keys.num_rows, otherwise, dtype=notes.dtype)
    found[batch.heads.rows] = notes
    return found


def _in_input_order(batch: Batch, values: Numbers) -> Numbers:
    """Values that lie key by key, in the order of the input rows."""
    found = np.empty_like(values)
    found[batch.grouping.order] = values
    return found


# --- where windows begin: for rows that lie key by key --------------------------------------------------------------


def _by_delta(attribute: Attribute, rows: pa.Table, batch: Batch) -> tuple[Bools, Numbers]:
    """(whether each row begins a window, the attribute of the first row of its window)."""
    runs, count = batch.runs, len(batch.grouping.order)
    values = attribute.values(rows)[batch.grouping.order]
    stored = batch.heads.values[_NOTE_PART]
    firsts = _noted(batch, as_int64(stored) if attribute.unit == pa.int64() else floats(stored), 0)
    climb, ends = Climb(values, runs), runs.ends
    following = np.maximum(climb.first_above(runs.ids, attribute.above(values)), np.arange(count) + 1)
    following = np.append(np.where(following < runs.spread(ends), following, count), count)
    start = climb.first_above(np.arange(len(ends)), attribute.above(firsts))
    start = np.where(batch.before > 0, np.where(start < ends, start, count), runs.starts)
    begins = _visited(start, following)
    place = np.maximum.accumulate(np.where(begins, np.arange(count), -1))
    inside = place >= runs.spread(runs.starts)
    return begins, np.where(inside, values[place], runs.spread(firsts))


def _visited(start: I64, following: I64) -> Bools:
    """The rows that are reached from the given ones by going on to the following one. Behind the last there is nothing.

    By doubling: after the n-th round all rows within 2^n steps are known."""
    nothing = len(following) - 1
    visited = np.zeros(len(following), dtype=np.bool_)
    visited[start] = True
    while (following[start] != nothing).any():
        visited[following[visited]] = True
        following = following[following]
    return visited[:nothing]


def _by_marks(column: str, rows: pa.Table, batch: Batch) -> tuple[Bools, Numbers]:
    """(whether each row begins a window, 1 if it ends one)."""
    flags = single(rows.column(column)).fill_null(False).to_numpy(zero_copy_only=False)
    marks = np.asarray(flags, dtype=np.int64)[batch.grouping.order]
    starts = batch.runs.starts
    begins = np.append(0, marks[:-1])
    begins[starts] = _noted(batch, as_int64(batch.heads.values[_NOTE_PART]), 1)
    return begins == 1, marks


# --- windows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of the step's keys, key by key. Items are input rows; negative: a stored row."""

    key: I64
    parts: Parts
    first_item: I64
    last_item: I64

    @property
    def is_last(self) -> Bools:
        """Which are the last of their key."""
        return np.append(self.key[1:] != self.key[:-1], True)


def _runs(windows: RunWindows, batch: Batch, begins: Bools, notes: Numbers) -> _Windows:
    runs, heads = batch.runs, batch.heads
    lifted = list(batch.lifted)
    lifted[_NUMBER_PART] = pa.array(_in_input_order(batch, batch.numbers))
    lifted[_NOTE_PART] = pa.array(_in_input_order(batch, notes))
    stored = len(heads.rows)
    key = np.concatenate((heads.rows, runs.ids))
    item = np.concatenate((np.arange(-stored, 0), batch.grouping.order))
    order = np.argsort(key, kind="stable")  # the stored window, then the rows
    key, item = key[order], item[order]
    new = np.concatenate((np.zeros(stored, dtype=np.bool_), begins))[order]
    new |= np.append(True, key[1:] != key[:-1])
    own = Runs(np.flatnonzero(new), len(key))
    together = [pa.concat_arrays(pair) for pair in zip(heads.values, lifted, strict=True)]
    folded = fold(windows.aggregation, taken(together, item + stored), own)
    return _Windows(key[own.starts], folded, item[own.starts], item[own.ends - 1])
