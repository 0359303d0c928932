"""Aggregates over sessions, as one partition computes them. The arithmetic is in `state/windows/session_windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.operators.aggregates.windowed import REWRITTEN_ROWS, SEGMENTS_MAX
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.logic import Applied, Place, Segments
from holdfast.operators.shared.timed import Arrived, TimedLogic, TimedPort
from holdfast.operators.stored.parts import Known
from holdfast.state.columns.hashing import owned
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import OPENED, Segment, opened
from holdfast.state.windows import session_windows
from holdfast.state.windows.session_windows import Sessions
from holdfast.state.windows.watermarks import NEVER


@dataclass(frozen=True)
class SessionAggregate(TimedLogic):
    """`meta`: that of `TimedPort.passage`. A session comes out when the watermark has passed its end."""

    sessions: Sessions
    port: TimedPort
    input: pa.Schema
    output: pa.Schema
    late: bool = False
    stamp: int | None = None
    """The number of this operator if its results carry positions: the session's end, then the hash of the key."""

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        known = self.sessions.aggregation.schema.names
        used = self.input.names if self.late else [n for n in known if n in self.input.names]
        return ((*dict.fromkeys([*used, self.port.on]), *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        results = with_positions(self.output, self.stamp is not None)
        return (results, self.input) if self.late else (results,)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        passage = self.port.passage(meta or {}, arrived)
        times = self.port.times(arrived.rows)
        is_late = times < self.port.marks_in(passage, arrived)
        rows, late = arrived.rows, arrived.rows.slice(0, 0)
        if is_late.any():
            rows, late = rows.filter(pa.array(~is_late)), rows.filter(pa.array(is_late))
        fresh = session_windows.sums(self.sessions, rows, times[~is_late])
        tables = [opened(segment, self.sessions.aggregation).table for segment in segments]
        found = session_windows.joined(self.sessions, [*tables, fresh])
        ends = self.sessions.ends(found)
        shown, now = (NEVER if mark is None else mark for mark in (passage.was, passage.now))
        output = self._output(found.filter(pa.array((ends > shown) & (ends <= now))))
        outputs = [output, late.select(self.input.names).cast(self.input)] if self.late else [output]
        kept = self._kept(segments, fresh, found.filter(pa.array(ends > now)), place)
        OPENED.forget(set(segments).difference(kept))
        return Applied(kept, tuple(outputs), passage.meta, {"late": late.num_rows} if late.num_rows else {})

    def _output(self, closed: pa.Table) -> pa.Table:
        output = session_windows.results(self.sessions, closed, self.output.field(0).type)
        if self.stamp is not None:
            number = np.full(closed.num_rows, self.stamp, dtype=np.int32)
            stamps = (number, self.sessions.ends(closed), session_windows.key_hashes(closed))
            for field, values in zip(POSITION_FIELDS, stamps, strict=True):
                output = output.append_column(field, pa.array(values))
        return output.select(self.outputs[0].names).cast(self.outputs[0])

    def _kept(self, segments: Segments, fresh: pa.Table, open_ones: pa.Table, place: Place) -> Segments:
        """The new segments: a small state is written anew with every step, a large one once in a while. Until then
        sessions that have come out stay in it, and are known by their ends."""
        if open_ones.num_rows <= REWRITTEN_ROWS or len(segments) >= SEGMENTS_MAX:
            return (place.write(open_ones),) if open_ones.num_rows else ()
        return (*segments, place.write(fresh)) if fresh.num_rows else segments

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        pieces = []
        for segment in [segment for segments in old for segment in segments]:
            table = opened(segment, self.sessions.aggregation).table
            mine = owned(session_windows.key_hashes(table), partition, partitions)
            pieces.append(table.filter(pa.array(mine)))
        joined = session_windows.joined(self.sessions, pieces)
        return (place.write(joined),) if joined.num_rows else ()

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return evolved_sums(table, self.sessions.aggregation, segment.name)

    def known(self, meta: Any) -> Known:
        return Known(self.sessions.aggregation, self.output.field(0).type)
