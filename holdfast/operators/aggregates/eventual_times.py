"""Aggregates over windows of time, and over sessions, that tell of their windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.aggregates.eventual import TellingLogic, due, first_of, positions_of
from holdfast.operators.aggregates.sessions import SessionAggregate
from holdfast.operators.aggregates.windowed import TimedAggregate, WindowedAggregate
from holdfast.operators.shared.logic import Segments, longs
from holdfast.operators.shared.timed import Arrived
from holdfast.state.columns.hashing import I64
from holdfast.state.eventual.scan import takes
from holdfast.state.keyed.segment import segment_rows
from holdfast.state.windows.eventual_sessions import SessionUnits
from holdfast.state.windows.eventual_times import TimeUnits


class EventualTimed(TimedAggregate, TellingLogic):
    """Over some kind of windows of event time."""

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (*super().outputs, *self.with_records)

    def key_hashes_of(self, table: pa.Table) -> I64:
        return self.key_hashes(table)

    def now(self, meta: Any, wall_us: int) -> int:
        return max((int(time) for _, time in (meta or {}).get("reached", ())), default=0)

    def units_of(self, arrived: Arrived, windows: pa.Table, meta: Any) -> list[pa.Array]:
        """To which windows the rows belong, as far as they are not late."""
        raise NotImplementedError

    def kept_rows(self, arrived: Arrived, windows: pa.Table, meta: Any, end: Any) -> Any:
        units = self.units_of(arrived, windows, meta)
        chosen = takes(windows, units, positions_of(arrived.rows), end.upto)
        # Rows behind the end must not move time on: what they would close is open there.
        furthest = self.port.from_stored((end.meta or {}).get("reached", []))
        reached = {source: min(time, furthest[source]) for source, time in arrived.reached.items()}
        return Arrived(arrived.rows.filter(pa.array(chosen)), reached, arrived.total)


@dataclass(frozen=True)
class EventualWindowed(EventualTimed, WindowedAggregate):
    """Over windows of a fixed length of time."""

    @property
    def units(self) -> TimeUnits:
        return TimeUnits(self.windows)

    def groups(self, marks: pa.Table) -> I64:
        return longs(marks, self.windows.aggregation.by[0])

    def lowest(self, meta: Any) -> int:
        return self.units.lowest(meta)

    def further_outputs(
        self, arrived: Arrived, before: Sequence[pa.Table], fresh: pa.Table, after: Segments, asked: Any, meta: Any
    ) -> tuple[pa.Table, ...]:  # fmt: skip
        marks = self.units.newly_open(before, fresh, meta, first_of(arrived.rows))
        all_marks = pa.concat_tables([marks, self.units.reached(*positions_of(arrived.rows))])
        wanted = due(asked)
        if not len(wanted):
            return all_marks, self.windows.aggregation.state_schema.empty_table()
        tables = [segment_rows(segment, self.windows.aggregation).table for segment in after]
        return all_marks, self.units.checked(tables, wanted, meta, marks)

    def units_of(self, arrived: Arrived, windows: pa.Table, meta: Any) -> list[pa.Array]:
        first = self.windows.first_open(self.port.marks_in(self.port.passage(meta or {}, arrived), arrived))
        return self.units.units_of(arrived.rows, self.port.times(arrived.rows), first)


@dataclass(frozen=True)
class EventualSessions(EventualTimed, SessionAggregate):
    """Over sessions."""

    @property
    def units(self) -> SessionUnits:
        return SessionUnits(self.sessions)

    def further_outputs(
        self, arrived: Arrived, before: Sequence[pa.Table], fresh: pa.Table, after: pa.Table, asked: Any, shown: int
    ) -> tuple[pa.Table, ...]:  # fmt: skip
        was = self.joined(before)
        was = was.filter(pa.array(self.sessions.ends(was) > shown))
        marks = self.units.changed(was, fresh, after, first_of(arrived.rows))
        told = pa.concat_tables([marks, self.units.reached(*positions_of(arrived.rows))])
        return told, self.units.checked(after, due(asked), marks)

    def units_of(self, arrived: Arrived, windows: pa.Table, meta: Any) -> list[pa.Array]:
        return self.units.units_of(arrived.rows, self.port.times(arrived.rows), windows)
