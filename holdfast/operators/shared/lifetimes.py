"""Keyed maps of rows of one source that arrive with the largest event time up to each: what `state/keyed/expiry.py` decides by.

Without event time rows arrive as they are, and only where there are some. With it, every partition hears in every step
how far the source came, so that `meta` is the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.operators.values import Ttl
from holdfast.operators.shared import logic
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.logic import (
    Applied,
    Place,
    PortRows,
    Segments,
    Share,
    by_position,
    longs,
    times_at,
)
from holdfast.operators.shared.timed import (
    REACHED,
    STAIRS_NOTE,
    joined_shares,
    stairs_of,
    time_shares,
    with_reached,
)
from holdfast.operators.stored.parts import Known
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.expiry import LONG_AGO, SEEN, unexpired
from holdfast.state.values.plain_types import as_stream
from holdfast.state.windows.watermarks import STAIRS, stairs


def _no_rows() -> pa.Table:
    """Time moved on without any. Not a constant: the first table that is made lets Arrow import pandas, which takes longer than all
    that tells what is wrong with a graph."""
    return POSITION_FIELDS.empty_table()


@dataclass(frozen=True)
class Arrived:
    """Rows of one partition, and the largest event time of all partitions' rows; where that rose in the step, if it was
    asked for."""

    rows: pa.Table
    reached: int = LONG_AGO
    steps: pa.Table | None = None


@dataclass(frozen=True)
class Marked:
    """Arrived rows in the order of positions with their times (`SEEN`), the watermark at each, and the one that all
    rows of the step leave behind, with the `meta` that remembers it."""

    rows: pa.Table
    marks: I64
    mark: int
    meta: Any


class TimedMapLogic(MapLogic):
    """Rows of one source travel, with the watermark at each: what ends follows from their positions. `meta`: by event time
    {"reached": the largest so far}, by processing time {"now": when the step began}."""

    @property
    @abstractmethod
    def time(self) -> Ttl | None:
        """How long keys live, and by which time; None: for ever."""

    @property
    def wants_stairs(self) -> bool:
        """Whether it must know where in a step event time rose."""
        return False

    @property
    def _on(self) -> str | None:
        return None if self.time is None else self.time.on

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        given, times = rows.get(0), rows.get(times_at(0))
        if self._on is None or given is None:
            mine = None if given is None else logic.own_rows(given, self.key, partition, partitions)
            if mine is None and times is not None:
                steps = stairs_of(times)
                return Arrived(_no_rows(), _furthest(steps), steps)
            return Arrived(mine) if mine is not None and mine.num_rows else None
        ordered = by_position(given)
        if times is None and not self._aside:
            reached = np.maximum.accumulate(event_times(ordered, self._on))
            timed = ordered.append_column(REACHED, pa.array(reached))
            upto = int(reached[-1]) if len(reached) else LONG_AGO
            steps = self._stairs(ordered) if self.wants_stairs else None
        else:
            steps = pa.concat_tables([self._stairs(ordered), *([] if times is None else [stairs_of(times)])])
            timed, upto = with_reached(ordered, [steps]), _furthest(steps)
        return Arrived(logic.own_rows(timed, self.key, partition, partitions), upto, steps)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        if port < 0:
            return time_shares(rows, partitions)
        if self._on is None:
            return super().shares(port, rows, partitions)
        rows = by_position(rows)
        note = {STAIRS_NOTE: as_stream(self._stairs(rows))}
        return logic.noted_shares(rows, self.key, note, partitions)

    def gather(self, shares: Sequence[Share]) -> Arrived | None:
        if not shares:
            return None
        data, times = (
            [rows for port, rows in shares if port >= 0],
            [rows for port, rows in shares if port < 0],
        )
        if self._on is None:
            return Arrived(pa.concat_tables(data)) if data else None
        rows, steps = joined_shares(data or [_no_rows()], times)
        return Arrived(rows, _furthest(steps), steps)

    @property
    def _aside(self) -> bool:
        return self.time is not None and self.time.aside

    def _stairs(self, rows: pa.Table) -> pa.Table:
        """How rows in the order of their positions move time on by themselves."""
        if self._aside or self._on is None:
            return STAIRS.empty_table()
        return stairs([longs(rows, name) for name in POSITION_COLUMNS], event_times(rows, self._on))

    def at(self, meta: Any, now_us: int) -> Any:
        """By processing time the step's own time, which never falls."""
        if self.time is None or self.time.on is not None:
            return meta
        return {"now": max(now_us, (meta or {}).get("now", now_us))}

    def marked(self, arrived: Arrived, meta: Any) -> Marked:
        rows, time = arrived.rows, self.time
        if POSITION_COLUMNS[0] in rows.column_names:
            rows = by_position(rows)
        count = rows.num_rows
        if time is None:
            return Marked(rows, np.full(count, LONG_AGO), LONG_AGO, meta)
        if time.on is None:
            now = np.full(count, meta["now"], dtype=np.int64)
            return Marked(rows.append_column(SEEN, pa.array(now)), now, meta["now"], meta)
        before, delay = (meta or {}).get("reached", LONG_AGO), time.delay_us or 0
        upto = max(before, arrived.reached)
        after = {"reached": upto}
        if not count:
            return Marked(rows, np.empty(0, dtype=np.int64), upto - delay, after)
        reached = np.maximum(as_int64(single(rows.column(REACHED))), before)
        times = event_times(rows, time.on)
        times = np.where(times == LONG_AGO, reached, times)
        rows = rows.append_column(SEEN, pa.array(times))
        return Marked(rows, reached - delay, upto - delay, after)


def _furthest(steps: pa.Table) -> int:
    return int(longs(steps, "time").max(initial=LONG_AGO))


def event_times(rows: pa.Table, on: str) -> I64:
    """In microseconds; rows without one have `LONG_AGO`."""
    times = single(rows.column(on)).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return np.maximum(as_int64(times.fill_null(LONG_AGO)), LONG_AGO)


@dataclass(frozen=True)
class LivingLogic(TimedMapLogic):
    """Keys are forgotten by and by. `ttl`: how long they live; None: for ever."""

    ttl: Ttl | None

    @abstractmethod
    def lived(self, segments: Segments, marked: Marked) -> tuple[pa.Table, pa.Table]:
        """(output, new state rows) of some rows; columns of the output may be more than come out."""

    def counted(self, rows: int, output: int) -> Mapping[str, int]:
        """What a step with these numbers of input and output rows adds to the counts."""
        return {}

    @property
    def time(self) -> Ttl | None:
        return self.ttl

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        marked, schema = self.marked(arrived, meta), self.outputs[0]
        if not marked.rows.num_rows:
            return Applied(segments, (schema.empty_table(),), marked.meta)
        made, changed = self.lived(segments, marked)
        output = made.select(schema.names).cast(schema)
        useful = None if self.ttl is None else unexpired(self.ttl.length_us, marked.mark)
        after = self.advanced(segments, changed, place, useful)
        return Applied(after, (output,), marked.meta, self.counted(marked.rows.num_rows, output.num_rows))

    def known(self, meta: Any) -> Known:
        """With the time up to which keys have ended after a step, if some have."""
        if self.ttl is None or not meta:
            return Known(self.keyed_map)
        ended = meta["reached"] - (self.ttl.delay_us or 0) if "reached" in meta else meta.get("now")
        return Known(self.keyed_map, ends_us=None if ended is None else (self.ttl.length_us, ended))
