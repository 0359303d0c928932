"""Windows of the last so many rows, restored where their operator missed rows since: what those would have pushed out
goes, so that nobody meets a row that is too old.

A window of a whole stream loses what lies so many numbers further back. Of windows per key each loses the key's share of
what the stream missed, by the rows that the key had among all so far. Windows by event time need nothing of this: the
watermark goes on and takes their rows along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.language.operators.values import Latest
from holdfast.operators.shared.logic import Place, Segments
from holdfast.state.columns.grouping import Bools
from holdfast.state.joins.pairs import SideRows
from holdfast.state.joins.sides import Needed, Pile
from holdfast.state.joins.window_pairs import last_numbers, not_pushed_out, share_of_key


@dataclass(frozen=True, slots=True)
class Missing:
    """What is known of one stream: rows had and missed, and the number of the last row of all; None: that of the last
    row kept, of windows whose rows are all in one partition."""

    had: int
    missed: int
    last: int | None = None


def without_stale(
    piles: Sequence[Pile],
    windows: Sequence[Latest],
    streams: Sequence[Missing],
    partitions: Sequence[Segments],
    places: Sequence[Place],
) -> tuple[tuple[Segments, ...], int]:
    """(the partitions' segments without stale rows, how many rows of windows those were). `piles`: of the windows'
    rows."""
    found = [_fresh(piles, windows, streams, *its) for its in zip(partitions, places, strict=True)]
    return tuple(left for left, _ in found), sum(gone for _, gone in found)


def _fresh(
    piles: Sequence[Pile],
    windows: Sequence[Latest],
    streams: Sequence[Missing],
    segments: Segments,
    place: Place,
) -> tuple[Segments, int]:
    left, gone = list(segments), 0
    for pile, window, stream in zip(piles, windows, streams, strict=True):
        kept = pile.among(segments)
        if not window.rows or not stream.missed or not kept:
            continue
        stored = [pile.rows(segment) for segment in kept]
        was, now = (_in_window(stored, window, stream, missed) for missed in (0, stream.missed))
        gone += sum(_count(was, side) - _count(now, side) for side in stored)
        left = [segment for segment in left if segment not in kept]
        left += pile.only(kept, now, place)
    return tuple(left), gone


def _in_window(stored: Sequence[SideRows], window: Latest, stream: Missing, missed: int) -> Needed:
    """Which rows are in the window behind which so many more have come."""
    rows = window.rows or 0
    if window.per_key:

        def needed(side: SideRows) -> Bools | None:
            last = last_numbers(side, stored)
            return not_pushed_out(side, last, share_of_key(missed, last, stream.had), rows)

        return needed
    last = max(int(side.at.max()) for side in stored) if stream.last is None else stream.last
    return lambda side: not_pushed_out(side, last, missed, rows)


def _count(needed: Needed, side: SideRows) -> int:
    mask = needed(side)
    return len(side) if mask is None else int(np.count_nonzero(mask))
