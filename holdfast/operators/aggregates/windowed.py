"""Aggregates over event-time windows, as one partition computes them. The arithmetic is in `state/windows/time_windows.py`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.logic import Applied, Place, Segments
from holdfast.operators.shared.timed import Arrived, Passage, TimedLogic, TimedPort, left_out
from holdfast.operators.stored.parts import Known
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, combine, single
from holdfast.state.columns.hashing import I64, owned
from holdfast.state.keyed.row_count import rows_held
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import OPENED, Segment, segment_rows
from holdfast.state.windows import time_windows
from holdfast.state.windows.time_windows import PANE, Windows

REWRITTEN_ROWS = 1 << 17
"""Sums of a partition up to which they are kept in one segment, rewritten with every step."""

SEGMENTS_MAX = 8


@dataclass(frozen=True)
class TimedAggregate(TimedLogic):
    """Aggregates over some kind of windows of event time, kept as sums. `meta`: that of `TimedPort.passage`."""

    port: TimedPort
    input: pa.Schema
    output: pa.Schema
    late: bool
    """One more output: the rows that came too late."""
    stamp: int | None
    """The number of this operator if its results carry positions: the window's end, then the hash of the key."""

    @property
    @abstractmethod
    def sums(self) -> Aggregation:
        """What the rows of the state look like."""

    @abstractmethod
    def key_hashes(self, sums: pa.Table) -> I64:
        """The hashes of the keys alone, which decide who owns a sum."""

    @abstractmethod
    def joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Sums of several tables as those of one."""

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        known = [name for name in self.sums.schema.names if name in self.input.names]
        return (
            (*dict.fromkeys([*(self.input.names if self.late else known), self.port.on]), *POSITION_COLUMNS),
        )

    @property
    def results(self) -> pa.Schema:
        """Columns of complete windows."""
        return with_positions(self.output, self.stamp is not None)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (self.results, self.input) if self.late else (self.results,)

    def placed(self, output: pa.Table, ends: I64, sums: pa.Table) -> pa.Table:
        """Results as they leave: with positions, if somebody needs them."""
        if self.stamp is not None:
            stamps = (np.full(len(ends), self.stamp, dtype=np.int32), ends, self.key_hashes(sums))
            for field, values in zip(POSITION_FIELDS, stamps, strict=True):
                output = output.append_column(field, pa.array(values))
        return output.select(self.results.names).cast(self.results)

    def outcome(
        self,
        kept: Segments,
        output: pa.Table,
        late: pa.Table,
        passage: Passage,
        arrived: Arrived,
        more: Sequence[pa.Table] = (),
    ) -> Applied:
        outputs = [output, late.select(self.input.names).cast(self.input)] if self.late else [output]
        return Applied(kept, (*outputs, *more), passage.meta, left_out(late.num_rows, arrived))

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        tables = [segment_rows(segment, self.sums).table for segments in old for segment in segments]
        mine = [t.filter(pa.array(owned(self.key_hashes(t), partition, partitions))) for t in tables]
        joined = self.joined(mine)
        return (place.write(joined),) if joined.num_rows else ()

    def rows_of(self, segments: Segments) -> int:
        return rows_held(segments, self.sums)

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return evolved_sums(table, self.sums, segment.name)

    def known(self, meta: Any) -> Known:
        return Known(self.sums, self.output.field(0).type)


@dataclass(frozen=True)
class WindowedAggregate(TimedAggregate):
    """Windows of a fixed length."""

    windows: Windows

    @property
    def sums(self) -> Aggregation:
        return self.windows.aggregation

    def key_hashes(self, sums: pa.Table) -> I64:
        return time_windows.key_hashes(sums)

    def joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        return combine(self.sums, tables)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        passage = self.port.passage(meta or {}, arrived)
        fresh, late = self._sums(arrived, passage)
        tables = [segment_rows(segment, self.windows.aggregation).table for segment in segments]
        output = self._emit([*tables, fresh], fresh, passage.was, passage.now)
        kept = self._kept(segments, tables, fresh, passage.now, place)
        more = self.further_outputs(arrived, tables, fresh, kept, meta, passage.meta)
        OPENED.forget(set(segments).difference(kept))
        return self.outcome(kept, output, late, passage, arrived, more)

    def further_outputs(
        self, arrived: Arrived, before: Sequence[pa.Table], fresh: pa.Table, after: Segments, asked: Any, meta: Any
    ) -> tuple[pa.Table, ...]:  # fmt: skip
        """What goes to further outputs. `before`: tables of the state; `asked`, `meta`: the `meta` of the step and behind it."""
        return ()

    def _sums(self, arrived: Arrived, passage: Passage) -> tuple[pa.Table, pa.Table]:
        """(sums of the rows that still count, the rows that came too late)."""
        first = self.windows.first_open(self.port.marks_in(passage, arrived))
        fresh, late = time_windows.sums(self.windows, arrived.rows, self.port.times(arrived.rows), first)
        return fresh, arrived.rows.take(pa.array(late))

    def _emit(
        self, tables: Sequence[pa.Table], fresh: pa.Table, emitted: int | None, now: int | None
    ) -> pa.Table:
        """Windows that are complete now, and complete ones that late rows changed."""
        found = [self.windows.aggregation.state_schema.empty_table()]
        done = None if emitted is None else self.windows.complete(emitted)
        if done is not None and self.windows.lateness_us:
            changed = time_windows.of_windows(self.windows, [fresh], None, done)
            if changed.num_rows:
                lowest = int(as_int64(single(changed.column(PANE))).min())
                whole = time_windows.of_windows(self.windows, tables, lowest, done)
                found.append(time_windows.among(self.windows, whole, changed))
        if now is not None and (done is None or self.windows.complete(now) > done):
            next_one = None if done is None else done + 1
            found.append(time_windows.of_windows(self.windows, tables, next_one, self.windows.complete(now)))
        time_type = self.output.field(0).type
        complete = pa.concat_tables(found)
        output = time_windows.results(self.windows, complete, time_type)
        ends = as_int64(single(complete.column(PANE))) * self.windows.slide_us + self.windows.size_us
        return self.placed(output, ends, complete)

    def _kept(
        self, segments: Segments, tables: Sequence[pa.Table], fresh: pa.Table, now: int | None, place: Place
    ) -> Segments:
        """The new segments: few, and without most of what no open window needs."""
        needed = [time_windows.live(self.windows, table, now) for table in tables]
        added = time_windows.live(self.windows, fresh, now)
        total = sum(table.num_rows for table in needed) + added.num_rows
        if total <= REWRITTEN_ROWS or len(segments) >= SEGMENTS_MAX:
            # Old panes die as new ones come: a large state is rewritten once in a while, a small one always.
            joined = combine(self.windows.aggregation, [*needed, added])
            return (place.write(joined),) if joined.num_rows else ()
        used = [s for s, table in zip(segments, needed, strict=True) if table.num_rows]
        if added.num_rows:
            used.append(place.write(added))
        return tuple(used)
