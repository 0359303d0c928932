"""Aggregates over sessions, as one partition computes them. The arithmetic is in `state/windows/session_windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.aggregates.windowed import REWRITTEN_ROWS, SEGMENTS_MAX, TimedAggregate
from holdfast.operators.shared.logic import Applied, Place, Segments
from holdfast.operators.shared.timed import Arrived
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.segment import OPENED, segment_rows
from holdfast.state.windows import session_windows
from holdfast.state.windows.session_windows import Sessions
from holdfast.state.windows.watermarks import NEVER


@dataclass(frozen=True)
class SessionAggregate(TimedAggregate):
    """A session comes out when the watermark has passed its end."""

    sessions: Sessions

    @property
    def sums(self) -> Aggregation:
        return self.sessions.aggregation

    def key_hashes(self, sums: pa.Table) -> I64:
        return session_windows.key_hashes(sums)

    def joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        return session_windows.joined(self.sessions, tables)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        passage = self.port.passage(meta or {}, arrived)
        times = self.port.times(arrived.rows)
        is_late = times < self.port.marks_in(passage, arrived)
        rows, late = arrived.rows, arrived.rows.slice(0, 0)
        if is_late.any():
            rows, late = rows.filter(pa.array(~is_late)), rows.filter(pa.array(is_late))
        fresh = session_windows.sums(self.sessions, rows, times[~is_late])
        tables = [segment_rows(segment, self.sums).table for segment in segments]
        found = self.joined([*tables, fresh])
        ends = self.sessions.ends(found)
        shown, now = (NEVER if mark is None else mark for mark in (passage.was, passage.now))
        is_closed = (ends > shown) & (ends <= now)
        closed = found.filter(pa.array(is_closed))
        output = session_windows.results(self.sessions, closed, self.output.field(0).type)
        open_ones = found.filter(pa.array(ends > now))
        more = self.further_outputs(arrived, tables, fresh, open_ones, meta, shown)
        kept = self._kept(segments, fresh, open_ones, place)
        OPENED.forget(set(segments).difference(kept))
        return self.outcome(kept, self.placed(output, ends[is_closed], closed), late, passage, arrived, more)

    def further_outputs(
        self, arrived: Arrived, before: Sequence[pa.Table], fresh: pa.Table, after: pa.Table, asked: Any, shown: int
    ) -> tuple[pa.Table, ...]:  # fmt: skip
        """What goes to further outputs. `before`: tables of the state; `after`: the sessions that are open; `asked`: the `meta` of the
        step; `shown`: the watermark before it."""
        return ()

    def _kept(self, segments: Segments, fresh: pa.Table, open_ones: pa.Table, place: Place) -> Segments:
        """The new segments: a small state is written anew with every step, a large one once in a while. Until then
        sessions that have come out stay in it, and are known by their ends."""
        if open_ones.num_rows <= REWRITTEN_ROWS or len(segments) >= SEGMENTS_MAX:
            return (place.write(open_ones),) if open_ones.num_rows else ()
        return (*segments, place.write(fresh)) if fresh.num_rows else segments
