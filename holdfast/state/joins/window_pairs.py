"""Sliding windows of a join by counting: which rows of a stream are in its window at the moment a row of the other
comes.

Each row of a stream has a *number*: how many rows the stream (or its key) had up to it. At any moment the window of the
last n rows is a range of numbers, and numbers grow with the order of rows; so who meets whom is a question of ranges,
which `pairs.py` answers for all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.hashing import I64
from holdfast.state.joins.pairs import SideRows, count_matches, latest, matches
from holdfast.state.windows.watermarks import NEVER

FOREVER = np.iinfo(np.int64).max


def interleaved(ranks: I64, own: int, other: int, side: int) -> I64:
    """Moments of rows in a step of which both streams have some: evenly between each other, the left first.

    `ranks`: the rows' places among the `own` rows of their stream."""
    return (2 * ranks + 1) * max(other, 1) * 2 + side


def passed(moments: I64, own: int, other: int, side: int) -> I64:
    """How many rows of the other stream came before each moment of a row of this stream (see `interleaved`)."""
    # The other stream's row r comes at (2r + 1)·max(own, 1)·2 + (1 - side).
    spacing = 4 * max(own, 1)
    first = 2 * max(own, 1) + (1 - side)
    return np.clip(-(-(moments - first) // spacing), 0, other)


def numbers_per_key(fresh: SideRows, stored: Sequence[SideRows]) -> I64:
    """Numbers of the rows within their keys, going on from the last one kept. `fresh` is sorted by key and moment."""
    grouping = group_rows(fresh.hashes, fresh.keys)
    sizes = np.diff(grouping.starts, append=len(grouping.order))
    within = np.arange(len(grouping.order)) - np.repeat(grouping.starts, sizes)
    numbers = np.empty(len(fresh), dtype=np.int64)
    numbers[grouping.order] = within + 1
    return numbers + last_numbers(fresh, stored)


def last_numbers(probes: SideRows, stored: Sequence[SideRows]) -> I64:
    """The number of the last row kept of each probe's key; 0 if none is."""
    everything = np.full(len(probes), FOREVER)
    found = np.zeros(len(probes), dtype=np.int64)
    for side in stored:
        rows = latest(probes, np.full(len(probes), NEVER), everything, side) if len(side) else None
        if rows is not None:
            found = np.maximum(found, np.where(rows >= 0, side.at[rows], 0))
    return found


def before(probes: SideRows, fresh: SideRows) -> I64:
    """How many fresh rows of its key came before each probe. Both have moments as coordinates."""
    return count_matches(probes, np.full(len(probes), NEVER), probes.at - 1, fresh)


def outlived(side: SideRows, newest: SideRows, rows: int) -> Bools | None:
    """Which rows of a side are still among the last `rows` of their key. `newest`: fresh rows with numbers."""
    if not len(side) or not len(newest):
        return None
    gone = matches(newest, np.full(len(newest), NEVER), newest.at - rows, side)
    if not len(gone.other):
        return None
    needed = np.ones(len(side), dtype=np.bool_)
    needed[gone.other] = False
    return needed


def not_pushed_out(side: SideRows, last: int | I64, missed: int | I64, rows: int) -> Bools | None:
    """Which rows would still be in a window of the last `rows` if the rows that were missed had come behind the `last`
    one; None: all. Numbers of the whole stream, or for each row those of its key."""
    needed = np.asarray(side.at > last + np.minimum(missed, rows) - rows)
    return None if needed.all() else needed


def share_of_key(missed: int, last: I64, had: int) -> I64:
    """How many of the rows that a stream missed were of a key that had the number `last` among the `had` rows of the
    stream so far: its share of them, whole ones."""
    share = np.floor(float(missed) * last / max(had, 1))
    return np.asarray(np.minimum(share, missed), dtype=np.int64)


def last_of_each_key(fresh: SideRows) -> SideRows:
    """The row with the highest number of each key; `fresh` is sorted by hash and number."""
    if not len(fresh):
        return fresh
    grouping = group_rows(fresh.hashes, fresh.keys)
    ends = np.append(grouping.starts[1:], len(grouping.order)) - 1
    return SideRows(fresh.table.take(pa.array(np.sort(grouping.order[ends]))), fresh.by)
