"""Keyed maps that forget: a key has a time, and its state ends when the watermark has passed that time by a lifetime.

Whether a state has ended is decided for each row by the watermark at the row's own position. What lies in the segments
may have ended long ago: whoever finds it looks at its time, and merging leaves it out. A key's *life* is a run of its
rows between two ends.

What must hold: watermarks never fall from row to row, nor from step to step. So a state that has ended stays ended, and
older rows of the key in older segments have ended as well: nothing comes back when a merge drops the newest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, lift, running, single
from holdfast.state.columns.grouping import Bools, Grouping, Runs, group_rows
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.keyed_map import Useful
from holdfast.state.keyed.lookup import Found, find_rows
from holdfast.state.keyed.segment import Segment

SEEN = "__hf_seen"
"""Column of rows, and what a state row keeps last: the key's time in microseconds."""

LONG_AGO = -(1 << 62)
"""Before every time; lifetimes and delays can be added and taken away without an overflow."""


def remembering(by: Sequence[str], aggregates: Sequence[Aggregate], schema: pa.Schema) -> Aggregation:
    """The aggregates, and the time of each key."""
    widened = schema.append(pa.field(SEEN, pa.int64()))
    return Aggregation.plan(by, (*aggregates, (SEEN, "max", SEEN)), widened)


def unexpired(ttl_us: int, mark: int) -> Useful:
    """The state rows that have not ended at the watermark `mark`."""
    return Useful(lambda table: as_int64(single(table.columns[-1])) > mark - ttl_us)


# --- the first row of each life -------------------------------------------------------------------------------------


def first_of_lives(
    aggregation: Aggregation, segments: Sequence[Segment], rows: pa.Table, marks: I64, ttl_us: int | None
) -> tuple[I64, pa.Table]:
    """(the rows that begin a life, ascending; changed state rows). A life lasts until `ttl_us` after its first row.

    `rows`: at least one, in the order that counts, with hashes, and with `SEEN` if there is a lifetime. `marks`: the
    watermark at each row."""
    lifted = lift(aggregation, rows)
    grouping, found = _known(aggregation, segments, lifted)
    known = np.zeros(len(grouping.starts), dtype=np.bool_)
    known[found.rows] = True
    if ttl_us is None:
        fresh = grouping.first_rows[~known]
        return np.sort(fresh), lifted.take(pa.array(fresh))
    begins = _begins(grouping, found, as_int64(single(lifted.columns[-1])), marks, ttl_us)
    last = np.maximum.reduceat(np.where(begins, np.arange(len(begins)), -1), grouping.starts)
    changed = lifted.take(pa.array(grouping.order[last[last >= 0]]))
    return np.sort(grouping.order[begins]), changed


def _known(aggregation: Aggregation, segments: Sequence[Segment], lifted: pa.Table) -> tuple[Grouping, Found]:
    """The rows' keys, and the states they have."""
    own = lifted.select(range(1 + len(aggregation.by)))
    columns = [single(column) for column in own.columns]
    grouping = group_rows(as_int64(columns[0]), columns[1:])
    keys = own.take(pa.array(grouping.first_rows))
    return grouping, find_rows(segments, keys, aggregation)


def _begins(grouping: Grouping, found: Found, times: I64, marks: I64, ttl_us: int) -> Bools:
    """Of the rows in the order of the grouping, which begin a life.

    Each row has a successor: the first row of its key at which a life that it began would have ended. Lives begin at
    the rows that can be reached from each key's first one. By doubling: after k rounds 2^k steps have been taken."""
    count, row, starts = len(grouping.order), grouping.order, grouping.starts
    ids, ends = grouping.runs.ids, grouping.runs.ends
    stride = np.int64(count + 1)
    place = ids * stride + row

    def next_from(key: I64, ended_at: I64) -> I64:
        at = place.searchsorted(key * stride + ended_at)
        return np.where(at < ends[key], at, count)

    ended = marks.searchsorted(times[row] + ttl_us)
    follows = np.append(next_from(ids, np.maximum(ended, row + 1)), count)
    first = starts.copy()
    seen = as_int64(found.values[-1])
    first[found.rows] = next_from(found.rows, marks.searchsorted(seen + ttl_us))
    begins = np.zeros(count + 1, dtype=np.bool_)
    begins[first] = True
    while (follows < count).any():
        begins[follows[begins]] = True
        follows = follows[follows]
    return begins[:count]


# --- aggregates of each life ----------------------------------------------------------------------------------------


def of_lives(
    aggregation: Aggregation,
    segments: Sequence[Segment],
    rows: pa.Table,
    marks: I64,
    ttl_us: int | None,
    *,
    each: bool,
) -> tuple[pa.Table, pa.Table]:
    """(output, changed state rows). A life lasts until `ttl_us` after its latest row; None: for ever. Output: what each
    key's life has come to, or, with `each`, what it had come to after each row, in the order of `rows`; see
    `first_of_lives`."""
    lifted = lift(aggregation, rows)
    stored = _known(aggregation, segments, lifted)[1].as_table()
    every_mark = np.append(np.full(stored.num_rows, LONG_AGO), marks)

    def begins(times: pa.Array, grouping: Grouping) -> I64:
        assert ttl_us is not None
        order, runs = grouping.order, Runs(grouping.starts, len(grouping.order), running=True)
        new = _ended_before(as_int64(times)[order], every_mark[order], runs, ttl_us)
        new[grouping.starts] = True
        return np.flatnonzero(new)

    return running(aggregation, lifted, stored, each=each, begins=None if ttl_us is None else begins)


def _ended_before(times: I64, marks: I64, runs: Runs, ttl_us: int) -> Bools:
    """Whether the life of the rows before a row in its run has ended at the row.

    The largest time of *all* rows before will do: a later life that has a smaller one began when that had passed."""
    different, codes = np.unique(times, return_inverse=True)
    latest = different[runs.largest(codes.astype(np.int64))]
    ended = np.zeros(len(times), dtype=np.bool_)
    ended[1:] = marks[1:] >= latest[:-1] + ttl_us
    return ended
