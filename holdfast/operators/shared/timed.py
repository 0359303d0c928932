"""Rows of one input port that have an event time: how they reach their partition, and the watermark at each of them.

Every partition hears how far each source came in a step, also if none of its own rows arrived; so all partitions agree
on the watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared import logic
from holdfast.operators.shared.logic import KeyedLogic, PortRows, Share, longs
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64
from holdfast.state.values.plain_types import as_stream
from holdfast.state.windows import watermarks
from holdfast.state.windows.watermarks import NEVER

REACHED = "__hf_reached"
"""Column of arrived rows: the largest event time of their source up to them, within the step."""

STAIRS_NOTE = b"holdfast.stairs"
"""Under this name shares carry the stairs of their mapping task."""
ROWS_NOTE = b"holdfast.rows"
"""Under this name shares carry how many rows their mapping task had."""

NOW, PASSED, SILENT = "now", "passed", "silent"


@dataclass(frozen=True)
class Arrived:
    """Rows of one partition with `REACHED`, how far every source came in the step, and how many rows the port had in it,
    in all partitions."""

    rows: pa.Table
    reached: dict[int, int]
    total: int = 0


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
    """An input port with event time in the column `on`. Rows without an event time are left out."""

    by: tuple[str, ...]
    on: str
    sources: dict[int, str]
    """Names by number; numbers are those of this run, names are for ever."""
    delays: dict[int, int]
    """Microseconds by source number."""
    idle_us: int | None = None
    """After this processing time without a row a source no longer holds the watermark back; None: it always does."""

    # --- how rows arrive ---

    def own(self, rows: pa.Table, partition: int, partitions: int) -> Arrived:
        rows = self._timed(rows)
        sources, times = longs(rows, POSITION_COLUMNS[0]), self.times(rows)
        rows = rows.append_column(REACHED, pa.array(watermarks.running_maximum(sources, times)))
        mine = logic.own_rows(rows, self.by, partition, partitions)
        return Arrived(mine, watermarks.maxima(sources, times), rows.num_rows)

    def shares(self, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        rows = self._timed(rows)
        positions = [longs(rows, name) for name in POSITION_COLUMNS]
        note = {
            STAIRS_NOTE: as_stream(watermarks.stairs(positions, self.times(rows))),
            ROWS_NOTE: b"%d" % rows.num_rows,
        }
        return logic.noted_shares(rows, self.by, note, partitions)

    def gather(self, shares: Sequence[pa.Table]) -> Arrived | None:
        if not shares:
            return None
        rows, steps = joined_shares(shares)
        total = sum(int(share.schema.metadata[ROWS_NOTE]) for share in shares)
        return Arrived(rows, watermarks.maxima(longs(steps, "source"), longs(steps, "time")), total)

    def _timed(self, rows: pa.Table) -> pa.Table:
        """The rows in position order. One without an event time belongs to no window."""
        if rows.column(self.on).null_count:
            rows = rows.filter(rows.column(self.on).is_valid())
        return logic.by_position(rows)

    def times(self, rows: pa.Table) -> I64:
        """Event times in microseconds."""
        return as_int64(single(rows.column(self.on)).cast(pa.timestamp("us"), safe=False).cast(pa.int64()))

    # --- watermarks ---

    def marks(self, arrived: Arrived, before: Mapping[int, int]) -> I64:
        """The watermark of each row's own source at its position."""
        sources, reached = longs(arrived.rows, POSITION_COLUMNS[0]), longs(arrived.rows, REACHED)
        marks = np.empty(len(sources), dtype=np.int64)
        for source in np.unique(sources):
            of_source = sources == source
            ahead = before.get(int(source), NEVER)
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
        return self.port.own(rows[0], partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return self.port.shares(rows, partitions)

    def gather(self, shares: Sequence[Share]) -> Arrived | None:
        return self.port.gather([rows for _, rows in shares])

    def at(self, meta: Any, now_us: int) -> Any:
        return self.port.clocked(meta, now_us)

    def resumed(self, meta: Any) -> Any:
        return self.port.resumed(meta)


def later(mark: int | None, other: int | None) -> int | None:
    """The later watermark of two, either of which may not be there."""
    known = [each for each in (mark, other) if each is not None]
    return max(known, default=None)


def joined_shares(shares: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """(the rows of all shares with `REACHED`, the stairs of all mapping tasks)."""
    steps = [pa.ipc.open_stream(share.schema.metadata[STAIRS_NOTE]).read_all() for share in shares]
    rows = pa.concat_tables([share.replace_schema_metadata(None) for share in shares])
    reached = watermarks.join_stairs(steps, *(longs(rows, name) for name in POSITION_COLUMNS))
    return rows.append_column(REACHED, pa.array(reached)), pa.concat_tables(steps)
