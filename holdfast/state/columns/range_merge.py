"""Ranges of neighbouring state rows merged, many at once and overlapping, without a loop per range.

By doubling: *spans* have for each row the 1, 2, 4, … rows that end with it, and a range is put together from spans as
its length is from powers of two. So n rows cost n·log(longest range), however many ranges there are. Nothing is taken
away again, and rows are merged from left to right: every aggregate function will do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, fold
from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import I64

Parts = list[pa.Array]
"""What the accumulators of an aggregation keep, a row per state."""

_NONE = -1


def merged_ranges(aggregation: Aggregation, parts: Parts, first: I64, low: I64, high: I64) -> Parts:
    """The rows from each `low` to its `high` merged: a row per range.

    `first`: for each row, where the rows of its key begin. A range lies within one key and is not empty.
    """
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
