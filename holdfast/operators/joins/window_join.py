"""Sliding-window join in the order of arrival: a row meets what the other stream keeps at that moment, then enters its
own stream's window, out of which the oldest row falls.

Within a step the rows of the two streams alternate evenly; between steps they come as the streams run. So what meets
what follows the pace of the streams, as in any join by arrival; a replay from an epoch gives a result that such a run
could have given. Where it must not depend on the pace, the join takes event time (`ordered_join.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.values import Latest
from holdfast.operators.joins.joining import JoinLogic, PairShape, chosen, with_keys
from holdfast.operators.shared import logic
from holdfast.operators.shared.logic import Applied, Place, PortRows, Segments, Share, by_position, longs
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import I64
from holdfast.state.joins import window_pairs
from holdfast.state.joins.pairs import SideRows, matches, sorted_side, with_coordinate
from holdfast.state.joins.sides import MERGED_ROWS, Needed, Pile
from holdfast.state.keyed.segment import Segment
from holdfast.state.values.plain_types import as_stream

_RUNS = b"holdfast.runs"
RANK = "__hf_rank"
"""Column of arrived rows: their place among all rows of their stream in this step."""


@dataclass(frozen=True)
class Arrived:
    """Rows of one partition with `RANK`, and how many rows the stream has in this step."""

    rows: pa.Table
    total: int


@dataclass(frozen=True)
class WindowJoin(JoinLogic):
    """`meta`: {"rows": how many rows each stream had so far}."""

    by: tuple[tuple[str, ...], tuple[str, ...]]
    schemas: tuple[pa.Schema, pa.Schema]
    windows: tuple[Latest, Latest]
    shape: PairShape
    group_rows: int = MERGED_ROWS
    is_profiled: bool = False
    """The user did not say how large groups are: what they cost decides."""

    def with_groups(self, rows: int) -> WindowJoin | None:
        return replace(self, group_rows=rows) if self.is_profiled else None

    @property
    def piles(self) -> tuple[Pile, ...]:
        return tuple(Pile(side, self.by[side], self.schemas[side], self.group_rows) for side in (0, 1))

    # --- how rows arrive ---

    def own(self, rows: PortRows, partition: int, partitions: int) -> tuple[Arrived | None, Arrived | None]:
        found: list[Arrived | None] = [None, None]
        for side, table in rows.items():
            ordered = by_position(table)
            ranked = ordered.append_column(RANK, pa.array(np.arange(ordered.num_rows)))
            mine = logic.own_rows(ranked, self.by[side], partition, partitions)
            found[side] = Arrived(mine, ordered.num_rows)
        return found[0], found[1]

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        rows = by_position(rows)
        return logic.noted_shares(rows, self.by[port], note_of(rows), partitions)

    def gather(self, shares: Sequence[Share]) -> tuple[Arrived | None, Arrived | None] | None:
        if not shares:
            return None
        found: list[Arrived | None] = [None, None]
        for side in (0, 1):
            of_side = [table for port, table in shares if port == side]
            if of_side:
                rows, ranks, total = ranks_of(of_side)
                found[side] = Arrived(rows.append_column(RANK, pa.array(ranks)), total)
        return found[0], found[1]

    # --- a step ---

    def apply(
        self, segments: Segments, meta: Any, arrived: tuple[Arrived | None, Arrived | None], place: Place
    ) -> Applied:
        base = (meta or {}).get("rows", [0, 0])
        totals = [0 if these is None else these.total for these in arrived]
        piles = self.piles
        kept = [pile.among(segments) for pile in piles]
        stored = [[pile.rows(segment) for segment in of] for pile, of in zip(piles, kept, strict=True)]
        moved = [self._by_moment(side, arrived[side], totals) for side in (0, 1)]
        numbered = [self._numbered(side, moved[side], totals, base[side], stored[side]) for side in (0, 1)]
        output = [self.shape.output.empty_table()]
        for side in (0, 1):
            window = self.windows[side]
            probes = moved[1 - side]
            if not window.rows or not len(probes):
                continue
            if window.per_key:
                seen = window_pairs.last_numbers(probes, stored[side]) + window_pairs.before(
                    probes, moved[side]
                )
            else:
                seen = base[side] + window_pairs.passed(probes.at, totals[1 - side], totals[side], 1 - side)
            for other in (*stored[side], numbered[side]):
                pairs = matches(probes, seen - window.rows + 1, seen, other)
                output.append(oriented(self.shape, side, other, pairs.other, probes, pairs.probe))
        after = [had + more for had, more in zip(base, totals, strict=True)]
        result = pa.concat_tables(output)
        left: list[Segment] = []
        for side, pile in enumerate(piles):
            needed = in_window(self.windows[side], numbered[side], after[side])
            left += pile.advance(kept[side], numbered[side], needed, place)
        return Applied(tuple(left), (result,), {"rows": after})

    def _by_moment(self, side: int, arrived: Arrived | None, totals: Sequence[int]) -> SideRows:
        """Own rows that can meet somebody, with moments as coordinates."""
        if arrived is None:
            return self.piles[side].empty()
        rows = chosen(arrived.rows, with_keys(arrived.rows, self.by[side]))
        ranks = np.asarray(rows.column(RANK).to_numpy(), dtype=np.int64)
        return self.piles[side].fresh(
            rows, window_pairs.interleaved(ranks, totals[side], totals[1 - side], side)
        )

    def _numbered(
        self, side: int, moved: SideRows, totals: Sequence[int], base: int, stored: Sequence[SideRows]
    ) -> SideRows:
        """The same rows with their numbers; none if nothing is kept of this stream."""
        window = self.windows[side]
        if not window.rows or not len(moved):
            return self.piles[side].empty()
        if not window.per_key:
            ranks = ((moved.at - side) // (2 * max(totals[1 - side], 1)) - 1) // 2
            return with_coordinate(moved, base + ranks + 1)
        return numbered_per_key(moved, stored)

    # --- after rows were missed ---

    def had(self, meta: Any, counts: Mapping[str, int]) -> tuple[int, ...]:
        return _had(meta)

    def without_stale(
        self, partitions: Sequence[Segments], meta: Any, missed: Sequence[int], places: Sequence[Place]
    ) -> tuple[tuple[Segments, ...], int]:
        streams = [Missing(had, more, last=had) for had, more in zip(_had(meta), missed, strict=True)]
        return without_stale(self.piles, self.windows, streams, partitions, places)

    def after_missed(self, meta: Any, missed: Sequence[int]) -> Any:
        """Numbers of a whole stream go on behind the rows that were missed: what is left goes in its turn."""
        streams = zip(_had(meta), missed, self.windows, strict=True)
        return {"rows": [had if window.per_key else had + more for had, more, window in streams]}


def oriented(
    shape: PairShape, side: int, kept: SideRows, kept_rows: I64, probes: SideRows, probe_rows: I64
) -> pa.Table:
    """Output rows of pairs, of which the rows kept are on the given side."""
    if side == 0:
        return shape.rows(kept.table, kept_rows, probes.table, probe_rows)[0]
    return shape.rows(probes.table, probe_rows, kept.table, kept_rows)[0]


def numbered_per_key(moved: SideRows, stored: Sequence[SideRows]) -> SideRows:
    """Rows by their numbers within their keys."""
    numbered = with_coordinate(moved, window_pairs.numbers_per_key(moved, stored))
    return sorted_side(numbered.table, numbered.by) if moved.collides else numbered


def in_window(window: Latest, numbered: SideRows, total: int) -> Needed:
    """The rows that are still in a window of the last rows, of a stream that had `total` or of each key."""
    rows = window.rows or 0
    if not window.per_key:
        return lambda kept: above(kept.at, total - rows)
    newest = window_pairs.last_of_each_key(numbered)
    return lambda kept: window_pairs.outlived(kept, newest, rows)


def _had(meta: Any) -> tuple[int, ...]:
    return tuple((meta or {}).get("rows", (0, 0)))


def above(numbers: I64, limit: int) -> Bools | None:
    """Which are above the limit; None: all."""
    if not len(numbers):
        return None
    needed = numbers > limit
    return None if needed.all() else needed


# --- the place of each row among all rows of its stream in a step ------------------------------------------------------
#
# A mapping task has only some of the rows. It sends their positions to everybody, as runs of consecutive rows; who has
# the runs of all tasks knows how many rows come before any position.


def note_of(rows: pa.Table) -> dict[bytes, bytes]:
    """What a mapping task tells of its rows, which are in position order."""
    sources, ordinals, numbers = (longs(rows, name) for name in POSITION_COLUMNS)
    new = np.ones(len(numbers), dtype=np.bool_)
    new[1:] = (
        (sources[1:] != sources[:-1]) | (ordinals[1:] != ordinals[:-1]) | (numbers[1:] != numbers[:-1] + 1)
    )
    starts = np.flatnonzero(new)
    lengths = np.diff(starts, append=len(numbers))
    columns = (sources[starts], ordinals[starts], numbers[starts], lengths)
    names = ("source", "ordinal", "row", "length")
    return {_RUNS: as_stream(pa.table({n: pa.array(c) for n, c in zip(names, columns, strict=True)}))}


def ranks_of(shares: Sequence[pa.Table]) -> tuple[pa.Table, I64, int]:
    """(the rows of all shares, the place of each among all rows of the step, how many those are)."""
    runs = pa.concat_tables([pa.ipc.open_stream(share.schema.metadata[_RUNS]).read_all() for share in shares])
    rows = pa.concat_tables([share.replace_schema_metadata(None) for share in shares])
    starts = [longs(runs, name) for name in ("source", "ordinal", "row")]
    lengths = longs(runs, "length")
    order = np.lexsort(starts[::-1])
    ahead = np.cumsum(lengths[order]) - lengths[order]
    mine = [longs(rows, name) for name in POSITION_COLUMNS]
    place = _last_not_after([start[order] for start in starts], mine)
    return rows, ahead[place] + (mine[2] - starts[2][order][place]), int(lengths.sum())


def _last_not_after(starts: Sequence[I64], sought: Sequence[I64]) -> I64:
    """For each position the last start, of ascending ones, that is not after it."""
    count = len(starts[0])
    together = [np.concatenate(pair) for pair in zip(starts, sought, strict=True)]
    is_sought = np.repeat((0, 1), (count, len(sought[0])))
    order = np.lexsort((is_sought, *together[::-1]))
    upto = np.cumsum(order < count) - 1
    place = np.empty(len(order), dtype=np.int64)
    place[order] = upto
    return place[count:]


# --- windows restored where their operator missed rows since -----------------------------------------------------------
#
# What the missed rows would have pushed out goes, so that nobody meets a row that is too old. A window of a whole stream
# loses what lies as many numbers further back. Of windows per key each loses the key's share of what the stream missed,
# by the rows that the key had among all so far. Windows by event time need nothing of this: the watermark goes on and
# takes their rows along.


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
    """Which rows are in the window after `missed` more have come."""
    rows = window.rows or 0
    if window.per_key:

        def needed(side: SideRows) -> Bools | None:
            last = window_pairs.last_numbers(side, stored)
            return window_pairs.not_pushed_out(
                side, last, window_pairs.share_of_key(missed, last, stream.had), rows
            )

        return needed
    last = max(int(side.at.max()) for side in stored) if stream.last is None else stream.last
    return lambda side: window_pairs.not_pushed_out(side, last, missed, rows)


def _count(needed: Needed, side: SideRows) -> int:
    mask = needed(side)
    return len(side) if mask is None else int(np.count_nonzero(mask))
