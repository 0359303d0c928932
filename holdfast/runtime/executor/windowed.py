"""Aggregates over event-time windows, as one partition computes them. The arithmetic is in `state/windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.runtime.executor.logic import (
    Applied,
    KeyedLogic,
    Place,
    PortRows,
    Segments,
    Share,
    own_rows,
    owners,
    split,
    with_hashes,
)
from holdfast.state.aggregates import as_int64, combine, single
from holdfast.state.hashing import I64
from holdfast.state.keyed_map import sort_by_position
from holdfast.state.opened import OPENED, opened
from holdfast.state.segment import write_segment
from holdfast.state.watermarks import (
    NEVER,
    join_stairs,
    maxima,
    raised,
    running_maximum,
    stairs,
    watermark,
)
from holdfast.state.windows import PANE, Windows, among, key_hashes, live, of_windows, results, sums

REACHED = "__hf_reached"
"""Column of arrived rows: the largest event time of their source up to them, within the step."""

REWRITTEN_ROWS = 1 << 17
"""Sums of a partition up to which they are kept in one segment, rewritten with every step."""

SEGMENTS_MAX = 8
_STAIRS = b"holdfast.stairs"


@dataclass(frozen=True)
class Arrived:
    """Rows of one partition with `REACHED`, and how far every source came in the step."""

    rows: pa.Table
    reached: dict[int, int]


@dataclass(frozen=True)
class WindowedAggregate(KeyedLogic):
    """`meta`: {"reached": [[source, largest event time]], "watermark": of the last step, or None}; sources by name."""

    windows: Windows
    by: tuple[str, ...]
    on: str
    sources: dict[int, str]
    """Names by number; numbers are those of this run, names are for ever."""
    delays: dict[int, int]
    """Microseconds by source number."""
    input: pa.Schema
    output: pa.Schema
    late: bool = False

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        used = self.input.names if self.late else [*self._used, self.on]
        return ((*dict.fromkeys(used), *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (self.output, self.input) if self.late else (self.output,)

    @property
    def _used(self) -> list[str]:
        return [name for name in self.windows.aggregation.schema.names if name in self.input.names]

    # --- how rows arrive ---

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        timed = self._timed(rows[0])
        sources, times = _longs(timed, POSITION_COLUMNS[0]), self._times(timed)
        timed = timed.append_column(REACHED, pa.array(running_maximum(sources, times)))
        return Arrived(own_rows(timed, self.by, partition, partitions), maxima(sources, times))

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        rows = self._timed(rows)
        positions = [_longs(rows, name) for name in POSITION_COLUMNS]
        note = {_STAIRS: _as_bytes(stairs(positions, self._times(rows)))}
        rows = with_hashes(rows, self.by)
        parts = split(rows, partitions)
        empty = rows.slice(0, 0)
        return {p: parts.get(p, empty).replace_schema_metadata(note) for p in range(partitions)}

    def gather(self, shares: Sequence[Share]) -> Arrived | None:
        if not shares:
            return None
        steps = [pa.ipc.open_stream(share.schema.metadata[_STAIRS]).read_all() for _, share in shares]
        rows = pa.concat_tables([share.replace_schema_metadata(None) for _, share in shares])
        reached = join_stairs(steps, *(_longs(rows, name) for name in POSITION_COLUMNS))
        every = pa.concat_tables(steps)
        return Arrived(
            rows.append_column(REACHED, pa.array(reached)),
            maxima(_longs(every, "source"), _longs(every, "time")),
        )

    def _timed(self, rows: pa.Table) -> pa.Table:
        """The rows in position order. One without an event time belongs to no window."""
        if rows.column(self.on).null_count:
            rows = rows.filter(rows.column(self.on).is_valid())
        return sort_by_position(rows, POSITION_COLUMNS)

    def _times(self, rows: pa.Table) -> I64:
        return as_int64(single(rows.column(self.on)).cast(pa.timestamp("us"), safe=False).cast(pa.int64()))

    # --- a step ---

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        stored = dict((meta or {}).get("reached", []))
        before = {number: stored[name] for number, name in self.sources.items() if name in stored}
        emitted = (meta or {}).get("watermark")
        fresh, late = self._sums(arrived, before, emitted)
        reached = raised(before, arrived.reached)
        now = watermark(reached, self.delays)
        if emitted is not None:
            now = emitted if now is None else max(now, emitted)
        tables = [opened(segment, self.windows.aggregation).table for segment in segments]
        output = self._emit([*tables, fresh], fresh, emitted, now)
        outputs = [output.select(self.output.names).cast(self.output)]
        if self.late:
            outputs.append(late.select(self.input.names).cast(self.input))
        kept = self._kept(segments, tables, fresh, now, place)
        OPENED.forget(set(segments).difference(kept))
        return Applied(
            kept,
            tuple(outputs),
            {
                "reached": sorted([self.sources[number], time] for number, time in reached.items()),
                "watermark": now,
            },
            {"late": late.num_rows} if late.num_rows else {},
        )

    def _sums(
        self, arrived: Arrived, before: dict[int, int], emitted: int | None
    ) -> tuple[pa.Table, pa.Table]:
        """(sums of the rows that still count, the rows that came too late)."""
        sources, reached = _longs(arrived.rows, POSITION_COLUMNS[0]), _longs(arrived.rows, REACHED)
        marks = np.empty(len(sources), dtype=np.int64)
        for source in np.unique(sources):
            of_source = sources == source
            ahead = before.get(int(source), NEVER)
            marks[of_source] = np.maximum(reached[of_source], ahead) - self.delays[int(source)]
        if emitted is not None:
            marks = np.maximum(marks, emitted)
        first = self.windows.first_open(marks)
        fresh, late = sums(self.windows, arrived.rows, self._times(arrived.rows), first)
        return fresh, arrived.rows.take(pa.array(late))

    def _emit(
        self, tables: Sequence[pa.Table], fresh: pa.Table, emitted: int | None, now: int | None
    ) -> pa.Table:
        """Windows that are complete now, and complete ones that late rows changed."""
        found = [self.windows.aggregation.state_schema.empty_table()]
        done = None if emitted is None else self.windows.complete(emitted)
        if done is not None and self.windows.lateness_us:
            changed = of_windows(self.windows, [fresh], None, done)
            if changed.num_rows:
                lowest = int(as_int64(single(changed.column(PANE))).min())
                whole = of_windows(self.windows, tables, lowest, done)
                found.append(among(self.windows, whole, changed))
        if now is not None and (done is None or self.windows.complete(now) > done):
            next_one = None if done is None else done + 1
            found.append(of_windows(self.windows, tables, next_one, self.windows.complete(now)))
        time_type = self.output.field(0).type
        return results(self.windows, pa.concat_tables(found), time_type)

    def _kept(
        self, segments: Segments, tables: Sequence[pa.Table], fresh: pa.Table, now: int | None, place: Place
    ) -> Segments:
        """The new segments: few, and without most of what no open window needs."""
        needed = [live(self.windows, table, now) for table in tables]
        added = live(self.windows, fresh, now)
        total = sum(table.num_rows for table in needed) + added.num_rows
        if total <= REWRITTEN_ROWS or len(segments) >= SEGMENTS_MAX:
            # Old panes die as new ones come: a large state is rewritten once in a while, a small one always.
            joined = combine(self.windows.aggregation, [*needed, added])
            return (write_segment(place.directory, place.prefix, joined),) if joined.num_rows else ()
        used = [s for s, table in zip(segments, needed, strict=True) if table.num_rows]
        if added.num_rows:
            used.append(write_segment(place.directory, place.prefix, added))
        return tuple(used)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        pieces = []
        for segment in [segment for segments in old for segment in segments]:
            table = opened(segment, self.windows.aggregation).table
            mine = owners(key_hashes(table), partitions) == partition
            pieces.append(table.filter(pa.array(mine)))
        joined = combine(self.windows.aggregation, pieces)
        return (write_segment(place.directory, place.prefix, joined),) if joined.num_rows else ()


def _longs(table: pa.Table, name: str) -> I64:
    return as_int64(single(table.column(name)))


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
