"""Rows that wait for the watermark, in segments that are each in the order of time.

Rows are ordered by event time, then source, then position in it: no two rows of a stream are alike in all of them, so
the order is the same whatever the cut into steps. What has left stays in its segment until that is merged; it is found
by its time, which lies below the watermark it left at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.segment import Place, Segment, Segments, open_segment

TIME = "__hf_time"
"""First column of the segments: event time in microseconds; rows ascend by it."""

_SMALL_ROWS = 1 << 14
"""Segments up to this size are always merged with newer rows: few segments are worth more than what that costs."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A segment and those of its rows that have not left; without a segment, rows that are in none yet."""

    rows: pa.Table
    segment: Segment | None = None


def in_order(rows: pa.Table, positions: Sequence[str]) -> pa.Table:
    """Rows by time, then by the position columns."""
    keys = [_longs(rows, name) for name in (*reversed(positions), TIME)]
    return rows.take(pa.array(np.lexsort(keys)))


def waiting(segment: Segment, left_below: int | None) -> Waiting:
    """What of a segment has not left when everything below that time has."""
    return Waiting(_split(open_segment(segment.path), left_below)[1], segment)


def leave(waiting: Sequence[Waiting], mark: int | None) -> tuple[list[pa.Table], list[Waiting]]:
    """(rows below the watermark, what goes on waiting)."""
    pairs = [_split(each.rows, mark) for each in waiting]
    stay = [Waiting(after, each.segment) for each, (_, after) in zip(waiting, pairs, strict=True)]
    return [before for before, _ in pairs if before.num_rows], [each for each in stay if each.rows.num_rows]


def _split(rows: pa.Table, mark: int | None) -> tuple[pa.Table, pa.Table]:
    at = 0 if mark is None else int(_longs(rows, TIME).searchsorted(mark))
    return rows.slice(0, at), rows.slice(at)


def kept(stay: Sequence[Waiting], positions: Sequence[str], place: Place) -> Segments:
    """The segments of what goes on waiting, oldest first. Rows that are in none are written, together with the newest
    segments as far as these are not much larger: a row is written again only as often as the logarithm of its number."""
    older = [each for each in stay if each.segment is not None]
    fresh = [each.rows for each in stay if each.segment is None]
    count = sum(rows.num_rows for rows in fresh)
    if not count:
        return tuple(each.segment for each in older if each.segment is not None)
    while older and older[-1].rows.num_rows <= max(2 * count, _SMALL_ROWS):
        fresh.append(older.pop().rows)
        count += fresh[-1].num_rows
    written = place.write(in_order(pa.concat_tables(fresh), positions))
    return (*(each.segment for each in older if each.segment is not None), written)


def _longs(table: pa.Table, name: str) -> I64:
    return as_int64(single(table.column(name)))
