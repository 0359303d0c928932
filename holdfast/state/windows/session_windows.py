"""Sessions: rows of a key that follow each other within a gap, kept as pieces that are joined.

A *piece* is the sum of rows of a key that lie near enough to each other, with the times of its first and last row. A step
adds pieces; which belong to one session is found by looking at all pieces of the key in the order of time. A row that
lies before the watermark is late, so no row can come near a session that is closed: sessions are those that a look at all
rows in time would find, however they were cut into steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import aggregation
from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, single
from holdfast.state.columns.grouping import group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.windows.time_windows import END, START

SESSION = "__hf_session"
"""Key column: the time of a piece's first row."""
LAST = "__hf_last"
"""Aggregate: the time of its last row."""

_STEP = np.int64(-7046029254386353131)


@dataclass(frozen=True)
class Sessions:
    """A session ends `gap_us` after its last row: a row at that time begins another one."""

    gap_us: int
    aggregation: Aggregation
    """By the beginning and the key; the time of the last row is the first thing that is computed."""

    @staticmethod
    def plan(gap_us: int, by: Sequence[str], aggregates: Sequence[Aggregate], schema: pa.Schema) -> Sessions:
        widened = schema.append(pa.field(SESSION, pa.int64())).append(pa.field(LAST, pa.int64()))
        computed = ((LAST, "max", LAST), *aggregates)
        return Sessions(gap_us, Aggregation.plan((SESSION, *by), computed, widened))

    def lasts(self, pieces: pa.Table) -> I64:
        """The times of the last rows."""
        return as_int64(single(pieces.column(1 + len(self.aggregation.by))))

    def ends(self, pieces: pa.Table) -> I64:
        return self.lasts(pieces) + self.gap_us


def sums(sessions: Sessions, rows: pa.Table, times: I64) -> pa.Table:
    """Pieces of rows with hashes of their keys."""
    hashes = as_int64(single(rows.column(HASH_COLUMN)))
    keys = [single(rows.column(name)) for name in sessions.aggregation.by[1:]]
    begins = beginnings(groups(hashes, keys), times, times, sessions.gap_us)
    rows = rows.drop_columns([HASH_COLUMN]).append_column(SESSION, pa.array(begins))
    rows = rows.append_column(LAST, pa.array(times))
    return aggregation.partial(
        sessions.aggregation, rows.append_column(HASH_COLUMN, pa.array(mixed(hashes, begins)))
    )


def joined(sessions: Sessions, tables: Sequence[pa.Table]) -> pa.Table:
    """The sessions that the pieces of all tables make."""
    pieces = pa.concat_tables([sessions.aggregation.state_schema.empty_table(), *tables])
    return aggregation.combine(sessions.aggregation, [begun_at(pieces, sessions_of(sessions, pieces))])


def sessions_of(sessions: Sessions, pieces: pa.Table) -> I64:
    """For each piece the beginning of the session that it belongs to among all of them."""
    keys = [single(pieces.column(name)) for name in sessions.aggregation.by[1:]]
    begins = as_int64(single(pieces.column(SESSION)))
    return beginnings(groups(key_hashes(pieces), keys), begins, sessions.lasts(pieces), sessions.gap_us)


def begun_at(pieces: pa.Table, begins: I64) -> pa.Table:
    """The pieces with other beginnings."""
    for name, values in ((HASH_COLUMN, mixed(key_hashes(pieces), begins)), (SESSION, begins)):
        index = pieces.schema.get_field_index(name)
        pieces = pieces.set_column(index, pieces.schema.field(index), pa.array(values))
    return pieces


def beginnings(groups: I64, begins: I64, lasts: I64, gap_us: int) -> I64:
    """For each piece the beginning of the session that it belongs to."""
    order = np.lexsort((begins, groups))
    group, begin = groups[order], begins[order]
    reach = _running_maximum(group, lasts[order])
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (group[1:] != group[:-1]) | (begin[1:] - reach[:-1] >= gap_us)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = begin[fresh][np.cumsum(fresh) - 1]
    return found


def _running_maximum(groups: I64, values: I64) -> I64:
    """The largest value of the same group so far; groups ascend. Ranks instead of values leave room for the group."""
    if not len(values):
        return values
    distinct, rank = np.unique(values, return_inverse=True)
    base = groups * len(distinct)
    return distinct[np.maximum.accumulate(base + rank) - base]


def results(sessions: Sessions, found: pa.Table, time_type: pa.DataType) -> pa.Table:
    """Output rows: begin and end of the session, key, results."""
    table = aggregation.finish(sessions.aggregation, found).drop_columns([LAST])
    begins = single(table.column(SESSION)).cast(time_type)
    table = table.drop_columns([SESSION]).add_column(0, START, begins)
    return table.add_column(1, END, pa.array(sessions.ends(found)).cast(time_type))


def key_hashes(pieces: pa.Table) -> I64:
    """The hashes of the keys alone, which decide who owns a piece."""
    mixed, begins = (as_int64(single(pieces.column(name))) for name in (HASH_COLUMN, SESSION))
    with np.errstate(over="ignore"):
        return np.asarray(mixed - begins * _STEP)


def mixed(hashes: I64, begins: I64) -> I64:
    """One number per (session, key). It wraps around: only equality and spread matter."""
    with np.errstate(over="ignore"):
        return np.asarray(hashes + begins * _STEP)


def groups(hashes: I64, keys: Sequence[pa.Array]) -> I64:
    """The number of each row's key; equal keys have equal numbers."""
    grouping = group_rows(hashes, list(keys))
    sizes = np.diff(grouping.starts, append=len(grouping.order))
    groups = np.empty(len(hashes), dtype=np.int64)
    groups[grouping.order] = np.repeat(np.arange(len(grouping.starts)), sizes)
    return groups
