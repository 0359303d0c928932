"""Sliding-window join in the order of event time: then of the source's name, then of position.

Rows of both streams wait until both watermarks have passed them; then nobody can come in between any more, and they go
through the windows in their order. So the result does not depend on the pace of the streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.operators.values import Latest
from holdfast.operators.joins import joining, window_join
from holdfast.operators.joins.joining import Arrivals, Marks, Sides, TimedJoin
from holdfast.operators.joins.window_join import Missing, without_stale
from holdfast.operators.shared.logic import Place, PortRows, Segments, longs
from holdfast.operators.shared.timed import Arrived
from holdfast.state.columns.hashing import I64
from holdfast.state.joins.pairs import SideRows, matches, with_coordinate
from holdfast.state.joins.sides import Needed, Pile
from holdfast.state.joins.window_pairs import before, last_numbers
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.watermarks import NEVER


@dataclass(frozen=True)
class OrderedJoin(TimedJoin):
    """Shelves 0 and 1 are the windows, 2 and 3 the rows that wait. A window of the last rows of a whole stream is one
    thing for all keys: such a join has all its rows in one partition (`alone`)."""

    windows: tuple[Latest, Latest]

    @property
    def alone(self) -> bool:
        return any(window.rows and not window.per_key for window in self.windows)

    @property
    def piles(self) -> tuple[Pile, ...]:
        kept = super().piles
        return (*kept, *(Pile(2 + p.number, p.by, pa.schema([*p.columns, *POSITION_FIELDS])) for p in kept))

    # --- how rows arrive ---

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrivals:
        if not self.alone:
            return super().own(rows, partition, partitions)
        left, right = super().own(rows, 0, 1)
        return (left, right) if partition == 0 else (_without_rows(left), _without_rows(right))

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        if not self.alone:
            return super().shares(port, rows, partitions)
        everything = super().shares(port, rows, 1)[0]
        return {p: everything if p == 0 else everything.slice(0, 0) for p in range(partitions)}

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        if not self.alone:
            return super().repartition(old, partition, partitions, place)
        return super().repartition(old, 0, 1, place) if partition == 0 else ()

    # --- after rows were missed ---

    @property
    def counts_rows(self) -> bool:
        return any(window.rows for window in self.windows)

    def had(self, meta: Any, counts: Mapping[str, int]) -> tuple[int, ...] | None:
        return tuple((meta or {}).get("rows", (0, 0))) if self.counts_rows else None

    def without_stale(
        self, partitions: Sequence[Segments], meta: Any, missed: Sequence[int], places: Sequence[Place]
    ) -> tuple[tuple[Segments, ...], int]:
        streams = [Missing(had, more) for had, more in zip(self.had(meta, {}) or (0, 0), missed, strict=True)]
        return without_stale(self.piles[:2], self.windows, streams, partitions, places)

    # --- a step ---

    def step(
        self, segments: Segments, rows: Sides, was: Marks, now: Marks, place: Place
    ) -> tuple[Segments, pa.Table]:
        since, upto = _both(was), _both(now)
        ready: list[pa.Table] = []
        result_segments: list[Segment] = []
        for side, pile in enumerate(self.piles[2:]):
            kept, new = pile.among(segments), self.fresh(side, pile, rows[side])
            ready.append(joining.released(pile, kept, new, since, upto))
            result_segments += pile.advance(kept, new, joining.not_before(upto), place)
        windows, output = self._through_windows(segments, ready, upto, place)
        return (*windows, *result_segments), output

    def _through_windows(
        self, segments: Segments, ready: Sequence[pa.Table], now: int | None, place: Place
    ) -> tuple[list[Segment], pa.Table]:
        piles = self.piles[:2]
        kept = [pile.among(segments) for pile in piles]
        stored = [[pile.rows(segment) for segment in of] for pile, of in zip(piles, kept, strict=True)]
        moments = self._moments(ready)
        moved = [pile.fresh(ready[side], moments[side]) for side, pile in enumerate(piles)]
        output = [self.shape.output.empty_table()]
        segments_after: list[Segment] = []
        for side, pile in enumerate(piles):
            window, every = self.windows[side], moved[1 - side]
            if window.rows == 0:
                continue
            # A row without a whole key meets nobody, but it takes its place in a window.
            probes = SideRows(joining.chosen(every.table, joining.with_keys(every.table, every.by)), every.by)
            base = max((int(of.at.max()) for of in stored[side]), default=0)
            fresh = self._numbered(side, moved[side], moments[side], base, stored[side])
            if window.per_key:
                seen = last_numbers(probes, stored[side]) + before(probes, moved[side])
            else:
                seen = base + np.searchsorted(np.sort(moments[side]), probes.at)
            for other in (*stored[side], fresh):
                low, values = self._bounds(side, window, probes, seen, other)
                pairs = matches(probes, low, seen, other, values)
                output.append(window_join.oriented(self.shape, side, other, pairs.other, probes, pairs.probe))
            needed = self._needed(side, fresh, base + len(moments[side]), now)
            segments_after += pile.advance(kept[side], fresh, needed, place)
        return segments_after, pa.concat_tables(output)

    def _moments(self, ready: Sequence[pa.Table]) -> list[I64]:
        """The place of each row in the common order."""
        names = [next(iter(port.sources.values())) for port in self.ports]
        rank = [sorted(set(names)).index(name) for name in names]
        times = [port.times(table) for port, table in zip(self.ports, ready, strict=True)]
        sources = [np.full(len(of), rank[side]) for side, of in enumerate(times)]
        places = [[longs(table, name) for table in ready] for name in POSITION_COLUMNS[1:]]
        keys = [np.concatenate(pair) for pair in (places[1], places[0], sources, times)]
        order = np.lexsort(keys)
        moments = np.empty(len(order), dtype=np.int64)
        moments[order] = np.arange(len(order))
        return [moments[: len(times[0])], moments[len(times[0]) :]]

    def _numbered(
        self, side: int, moved: SideRows, moments: I64, base: int, stored: Sequence[SideRows]
    ) -> SideRows:
        if not self.windows[side].per_key:
            return with_coordinate(moved, base + 1 + np.searchsorted(np.sort(moments), moved.at))
        return window_join.numbered_per_key(moved, stored)

    def _bounds(
        self, side: int, window: Latest, probes: SideRows, seen: I64, other: SideRows
    ) -> tuple[I64, I64 | None]:
        """(the lower bound of each probe, what it bounds if not the number)."""
        if window.rows is not None:
            return seen - window.rows + 1, None
        assert window.size_us is not None
        times = self.ports[1 - side].times(probes.table)
        return times - window.size_us + 1, self.ports[side].times(other.table)

    def _needed(self, side: int, fresh: SideRows, total: int, now: int | None) -> Needed:
        window = self.windows[side]
        if window.size_us is not None:
            limit = NEVER if now is None else now - window.size_us
            return lambda kept: window_join.above(self.ports[side].times(kept.table), int(limit))
        return window_join.in_window(window, fresh, total)


def _both(marks: Marks) -> int | None:
    """Up to here both streams are complete."""
    known = [mark for mark in marks if mark is not None]
    return min(known) if len(known) == 2 else None


def _without_rows(arrived: Arrived | None) -> Arrived | None:
    """How far the sources came, without the rows."""
    return None if arrived is None else Arrived(arrived.rows.slice(0, 0), arrived.reached, arrived.total)
