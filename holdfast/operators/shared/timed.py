"""Rows of one input port that have an event time: how they reach their partition, and the watermark at each of them.

Every partition hears how far each source came in a step, also if none of its own rows arrived; so all partitions agree
on the watermark. Where rows that moved time on may be missing (behind a filter), times travel beside the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, TIME_COLUMN, TIMES
from holdfast.operators.shared import logic
from holdfast.operators.shared.logic import KeyedLogic, PortRows, Share, longs, times_at
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.expiry import LONG_AGO
from holdfast.state.values.plain_types import as_stream
from holdfast.state.windows import watermarks
from holdfast.state.windows.watermarks import STAIRS

REACHED = "__hf_reached"
"""Column of arrived rows: the largest event time of their source up to them, within the step."""

STAIRS_NOTE = b"holdfast.stairs"
"""Under this name shares carry the stairs of their mapping task."""
ROWS_NOTE = b"holdfast.rows"
"""Under this name shares carry how many rows their mapping task had."""

NOW, PASSED, SILENT = "now", "passed", "silent"

TIMELESS = "without_time"
"""Under this name operators count rows that have no event time."""


@dataclass(frozen=True)
class Arrived:
    """Rows of one partition with `REACHED`, how far every source came in the step, and how many rows the port had in it,
    in all partitions. Those of the partition without an event time, if there are some."""

    rows: pa.Table
    reached: dict[int, int]
    total: int = 0
    timeless: pa.Table | None = None


@dataclass(frozen=True)
class Passage:
    """How time goes on in a step: how far each source had come, the watermark before the step and after it, the `meta`
    that remembers it. A watermark never falls, also if an idle source comes back."""

    before: dict[int, int]
    was: int | None
    now: int | None
    meta: dict[str, Any]


@dataclass(frozen=True)
class TimedPort:
    """An input port with event time in the column `on`. Rows without an event time are kept apart."""

    by: tuple[str, ...]
    on: str
    sources: dict[int, str]
    """Names by number; numbers are those of this run, names are for ever."""
    delays: dict[int, int]
    """Microseconds by source number."""
    idle_us: int | None = None
    """After this processing time without a row a source no longer holds the watermark back; None: it always does."""
    aside: bool = False
    """Time is what travels beside the rows; they themselves do not move it on."""
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """Columns of the rows, without positions."""
    offset_us: int = 0
    """What must be added to the column."""

    # --- how rows arrive ---

    def own(self, given: PortRows, port: int, partition: int, partitions: int) -> Arrived | None:
        """Out of the rows of all ports what matters to one partition."""
        times = given.get(times_at(port))
        if port not in given and times is None:
            return None
        every = given.get(port, self._nothing)
        timeless = self._timeless(every)
        if timeless is not None:
            timeless = logic.own_rows(timeless, self.by, partition, partitions)
        rows = self._timed(every)
        if times is None and not self.aside:
            sources, own_times = longs(rows, POSITION_COLUMNS[0]), self.times(rows)
            rows = rows.append_column(REACHED, pa.array(watermarks.running_maximum(sources, own_times)))
            reached = watermarks.maxima(sources, own_times)
        else:
            steps = pa.concat_tables([self._stairs(rows), *([] if times is None else [stairs_of(times)])])
            rows, reached = with_reached(rows, [steps]), furthest(steps)
        mine = logic.own_rows(rows, self.by, partition, partitions)
        return Arrived(mine, reached, rows.num_rows, timeless)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        if port < 0:
            return time_shares(rows, partitions)
        timed, timeless = self._timed(rows), self._timeless(rows)
        note = {STAIRS_NOTE: as_stream(self._stairs(timed)), ROWS_NOTE: b"%d" % timed.num_rows}
        travelling = timed if timeless is None else pa.concat_tables([timed, timeless])
        return logic.noted_shares(travelling, self.by, note, partitions)

    def gather(self, shares: Sequence[Share], port: int = 0) -> Arrived | None:
        """From the shares of all ports."""
        data = [table for number, table in shares if number == port]
        times = [table for number, table in shares if number == times_at(port)]
        if not data and not times:
            return None
        rows, steps = joined_shares(data or [logic.own_rows(self._nothing, self.by, 0, 1)], times)
        total = sum(int(share.schema.metadata[ROWS_NOTE]) for share in data)
        timeless = self._timeless(rows)
        if timeless is not None:
            rows = rows.filter(rows.column(self.on).is_valid())
        return Arrived(rows, furthest(steps), total, timeless)

    @property
    def _nothing(self) -> pa.Table:
        return pa.schema([*self.schema, *POSITION_FIELDS]).empty_table()

    def own_stairs(self, rows: pa.Table) -> pa.Table:
        """How rows, some of which may have no event time, move time on by themselves."""
        return STAIRS.empty_table() if self.aside else self._stairs(self._timed(rows))

    def _stairs(self, rows: pa.Table) -> pa.Table:
        """How rows in the order of their positions move time on by themselves."""
        if self.aside:
            return STAIRS.empty_table()
        return watermarks.stairs([longs(rows, name) for name in POSITION_COLUMNS], self.times(rows))

    def _timed(self, rows: pa.Table) -> pa.Table:
        """The rows in position order. One without an event time belongs to no window."""
        if rows.column(self.on).null_count:
            rows = rows.filter(rows.column(self.on).is_valid())
        return logic.by_position(rows)

    def _timeless(self, rows: pa.Table) -> pa.Table | None:
        """The rows without an event time, if there are some."""
        if not rows.column(self.on).null_count:
            return None
        return rows.filter(rows.column(self.on).is_null())

    def times(self, rows: pa.Table) -> I64:
        """Event times in microseconds; before all others where there is none."""
        found = single(rows.column(self.on)).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        times = as_int64(found.fill_null(LONG_AGO) if found.null_count else found)
        return times + self.offset_us if self.offset_us else times

    # --- watermarks ---

    def marks(self, arrived: Arrived, before: Mapping[int, int]) -> I64:
        """The watermark of each row's own source at its position."""
        sources, reached = longs(arrived.rows, POSITION_COLUMNS[0]), longs(arrived.rows, REACHED)
        marks = np.empty(len(sources), dtype=np.int64)
        for source in np.unique(sources):
            of_source = sources == source
            ahead = before.get(int(source), LONG_AGO)
            marks[of_source] = np.maximum(reached[of_source], ahead) - self.delays[int(source)]
        return marks

    def mark(self, reached: Mapping[int, int], silent: Mapping[int, int] | None = None) -> int | None:
        """The watermark of the port: the smallest of its sources' that are not idle; None if they all are."""
        idle = self.idle(silent or {})
        return watermarks.watermark(
            reached, {source: us for source, us in self.delays.items() if source not in idle}
        )

    def passage(self, meta: Mapping[str, Any], arrived: Arrived) -> Passage:
        """`meta`: {"reached": [[source, largest event time]], "watermark": of the last step, or None}, sources by name;
        and what `noted` gives if sources may be idle."""
        before, was = self.from_stored(meta.get("reached", [])), meta.get("watermark")
        reached = self.after(before, arrived)
        silent = self.silences(meta.get(SILENT, []), meta.get(PASSED, 0), arrived)
        now = later(self.mark(reached, silent), was)
        silences = self.noted(meta, self.to_stored(silent))
        return Passage(before, was, now, {"reached": self.to_stored(reached), "watermark": now, **silences})

    def marks_in(self, passage: Passage, arrived: Arrived) -> I64:
        """The watermark at each row: that of its own source, but not below the one before the step."""
        marks = self.marks(arrived, passage.before)
        return marks if passage.was is None else np.maximum(marks, passage.was)

    # --- sources that no longer hold the watermark back ---
    #
    # For how long a source has been silent is processing time between steps: a step begins with the driver's time, and
    # its `meta` keeps the silence of each source after it. So what was decided up to an epoch is stored with it, and a
    # run that goes on from there begins with the same sources idle. While nobody ran, nobody was silent.
    #
    #     {"now": when the last step began, "silent": [[source, µs without a row]]}

    def clocked(self, meta: Any, now_us: int) -> Any:
        """What `KeyedLogic.at` gives: with the step's own time, which never falls, and what passed since the last step."""
        if self.idle_us is None:
            return meta
        known = meta or {}
        before = known.get(NOW, now_us)
        now = max(now_us, before)
        # A step that brought nobody a row has not used up what had passed before it.
        return {**known, NOW: now, PASSED: known.get(PASSED, 0) + now - before}

    def resumed(self, meta: Any) -> Any:
        """What `KeyedLogic.resumed` gives: the next step is the first one, before which no time passed."""
        if self.idle_us is None or meta is None:
            return meta
        return {name: value for name, value in meta.items() if name != NOW}

    def noted(self, meta: Mapping[str, Any], silent: Any) -> dict[str, Any]:
        """What a step's new `meta` keeps."""
        return {} if self.idle_us is None else {NOW: meta.get(NOW, 0), SILENT: silent}

    def idle(self, silent: Mapping[int, int]) -> frozenset[int]:
        """The sources that have been silent for too long."""
        if self.idle_us is None:
            return frozenset()
        return frozenset(source for source, us in silent.items() if us >= self.idle_us)

    def silences(self, stored: Sequence[Any], passed_us: int, arrived: Arrived | None) -> dict[int, int]:
        """For how long each source has had no row with an event time, after a step. New ones begin with it."""
        known = dict(stored)
        heard = arrived.reached if arrived is not None else {}
        return {
            number: 0 if number in heard else known.get(name, -passed_us) + passed_us
            for number, name in self.sources.items()
        }

    def from_stored(self, stored: Sequence[Any]) -> dict[int, int]:
        """How far each source of this run had come."""
        known = dict(stored)
        return {number: known[name] for number, name in self.sources.items() if name in known}

    def to_stored(self, reached: Mapping[int, int]) -> list[list[Any]]:
        return sorted([self.sources[number], time] for number, time in reached.items())

    def after(self, before: Mapping[int, int], arrived: Arrived | None) -> dict[int, int]:
        """How far the sources have come after a step."""
        return watermarks.raised(before, arrived.reached if arrived is not None else {})


class TimedLogic(KeyedLogic):
    """An operator with one port that has event time."""

    port: TimedPort

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        return self.port.own(rows, 0, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return self.port.shares(port, rows, partitions)

    def gather(self, shares: Sequence[Share]) -> Arrived | None:
        return self.port.gather(shares)

    def reached(self, meta: Any) -> int | None:
        found: int | None = (meta or {}).get("watermark")
        return found

    def at(self, meta: Any, now_us: int) -> Any:
        return self.port.clocked(meta, now_us)

    def resumed(self, meta: Any) -> Any:
        return self.port.resumed(meta)


def left_out(late: int, *arrived: Arrived | None) -> dict[str, int]:
    """What an operator counts of rows that have no place in its time: those behind the watermark, and those without a time."""
    timeless = [each.timeless for each in arrived if each is not None and each.timeless is not None]
    counts = {"late": late, TIMELESS: sum(rows.num_rows for rows in timeless)}
    return {name: rows for name, rows in counts.items() if rows}


def later(mark: int | None, other: int | None) -> int | None:
    """The later watermark of two, either of which may not be there."""
    known = [each for each in (mark, other) if each is not None]
    return max(known, default=None)


def joined_shares(shares: Sequence[pa.Table], times: Sequence[pa.Table] = ()) -> tuple[pa.Table, pa.Table]:
    """(the rows of all shares with `REACHED`, the stairs of all mapping tasks). `times`: shares of times."""
    notes = [share.schema.metadata for share in (*shares, *times) if share.schema.metadata]
    steps = [pa.ipc.open_stream(note[STAIRS_NOTE]).read_all() for note in notes]
    rows = pa.concat_tables([share.replace_schema_metadata(None) for share in shares])
    return with_reached(rows, steps), pa.concat_tables([STAIRS.empty_table(), *steps])


def with_reached(rows: pa.Table, steps: Sequence[pa.Table]) -> pa.Table:
    """The rows with how far time had come at each of them."""
    reached = watermarks.join_stairs(steps, *(longs(rows, name) for name in POSITION_COLUMNS))
    return rows.append_column(REACHED, pa.array(np.maximum(reached, LONG_AGO)))


def furthest(steps: pa.Table) -> dict[int, int]:
    """How far each source came."""
    return watermarks.maxima(longs(steps, "source"), longs(steps, "time"))


def times_of(rows: pa.Table, on: str) -> pa.Table:
    """Positions and event times of rows, as they travel beside rows; without those that have no time."""
    at = rows.column(on).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    times = rows.select(list(POSITION_COLUMNS)).append_column(TIME_COLUMN, at)
    return times.filter(at.is_valid()) if at.null_count else times


def rising(times: pa.Table) -> pa.Table:
    """Of times that travel beside rows those that are later than all before them: nobody needs the others."""
    steps = stairs_of(times)
    return pa.table(steps.columns, names=TIMES.names).cast(TIMES)


def stairs_of(times: pa.Table) -> pa.Table:
    """Where times that travelled beside rows rise."""
    times = logic.by_position(times)
    return watermarks.stairs([longs(times, name) for name in POSITION_COLUMNS], longs(times, TIME_COLUMN))


def time_shares(times: pa.Table, partitions: int) -> dict[int, pa.Table]:
    """Times, for every partition: all of them hear how far time came."""
    share = TIMES.empty_table().replace_schema_metadata({STAIRS_NOTE: as_stream(stairs_of(times))})
    return dict.fromkeys(range(partitions), share)
