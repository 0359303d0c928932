"""Rows of one source that arrive with the largest event time up to each: what `state/keyed/expiry.py` decides by.

Without event time rows arrive as they are, and only where there are some. With it, every partition hears in every step
how far the source came, so that `meta` is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.operators.values import Ttl
from holdfast.operators.shared.logic import (
    PortRows,
    Share,
    noted_shares,
    own_rows,
    split,
    times_at,
    with_hashes,
)
from holdfast.operators.shared.timed import (
    REACHED,
    STAIRS_NOTE,
    as_bytes,
    joined_shares,
    longs,
    stairs_of,
    time_shares,
    with_reached,
)
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.expiry import LONG_AGO, SEEN
from holdfast.state.keyed.keyed_map import sort_by_position
from holdfast.state.windows.watermarks import STAIRS, stairs

NOTHING = POSITION_FIELDS.empty_table()
"""No rows: time moved on without any."""


@dataclass(frozen=True)
class Arrived:
    """Rows of one partition, and the largest event time of all partitions' rows."""

    rows: pa.Table
    reached: int = LONG_AGO


@dataclass(frozen=True)
class Marked:
    """Arrived rows in the order of positions with their times (`SEEN`), the watermark at each, and the one that all
    rows of the step leave behind, with the `meta` that remembers it."""

    rows: pa.Table
    marks: I64
    mark: int
    meta: Any


def own(
    given: PortRows, by: Sequence[str], ttl: Ttl | None, partition: int, partitions: int
) -> Arrived | None:
    """What `KeyedLogic.own` gives."""
    rows, times = given.get(0), given.get(times_at(0))
    if ttl is None or ttl.on is None:
        mine = None if rows is None else own_rows(rows, by, partition, partitions)
        return Arrived(mine) if mine is not None and mine.num_rows else None
    if rows is None:
        return None if times is None else Arrived(NOTHING, _furthest(stairs_of(times)))
    rows = sort_by_position(rows, POSITION_COLUMNS)
    if times is None and not ttl.aside:
        reached = np.maximum.accumulate(event_times(rows, ttl.on))
        timed = rows.append_column(REACHED, pa.array(reached))
        furthest = int(reached[-1]) if len(reached) else LONG_AGO
    else:
        steps = pa.concat_tables([_stairs(rows, ttl), *([] if times is None else [stairs_of(times)])])
        timed, furthest = with_reached(rows, [steps]), _furthest(steps)
    return Arrived(own_rows(timed, by, partition, partitions), furthest)


def shares(
    port: int, rows: pa.Table, by: Sequence[str], ttl: Ttl | None, partitions: int
) -> dict[int, pa.Table]:
    """What `KeyedLogic.shares` gives."""
    if ttl is None or ttl.on is None:
        return split(with_hashes(rows, by), partitions) if port >= 0 else {}
    if port < 0:
        return time_shares(rows, partitions)
    rows = sort_by_position(rows, POSITION_COLUMNS)
    return noted_shares(rows, by, {STAIRS_NOTE: as_bytes(_stairs(rows, ttl))}, partitions)


def gather(given: Sequence[Share], ttl: Ttl | None) -> Arrived | None:
    """What `KeyedLogic.gather` gives."""
    if not given:
        return None
    data, told = [rows for port, rows in given if port >= 0], [rows for port, rows in given if port < 0]
    if ttl is None or ttl.on is None:
        return Arrived(pa.concat_tables(data)) if data else None
    rows, steps = joined_shares(data or [NOTHING], told)
    return Arrived(rows, _furthest(steps))


def _stairs(rows: pa.Table, ttl: Ttl) -> pa.Table:
    """How rows in the order of their positions move time on by themselves."""
    if ttl.aside:
        return STAIRS.empty_table()
    assert ttl.on is not None
    return stairs([longs(rows, name) for name in POSITION_COLUMNS], event_times(rows, ttl.on))


def _furthest(steps: pa.Table) -> int:
    return int(longs(steps, "time").max(initial=LONG_AGO))


def event_times(rows: pa.Table, on: str) -> I64:
    """In microseconds; rows without one have `LONG_AGO`."""
    times = single(rows.column(on)).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return np.maximum(as_int64(times.fill_null(LONG_AGO)), LONG_AGO)


def marked(arrived: Arrived, ttl: Ttl | None, meta: Any) -> Marked:
    """`meta`: by event time {"reached": the largest so far}, by processing time {"now": when the step began}."""
    rows = arrived.rows
    if POSITION_COLUMNS[0] in rows.column_names:
        rows = sort_by_position(rows, POSITION_COLUMNS)
    count = rows.num_rows
    if ttl is None:
        return Marked(rows, np.full(count, LONG_AGO), LONG_AGO, meta)
    if ttl.on is None:
        now = np.full(count, meta["now"], dtype=np.int64)
        return Marked(rows.append_column(SEEN, pa.array(now)), now, meta["now"], meta)
    before, delay = (meta or {}).get("reached", LONG_AGO), ttl.delay_us or 0
    furthest = max(before, arrived.reached)
    after = {"reached": furthest}
    if not count:
        return Marked(rows, np.empty(0, dtype=np.int64), furthest - delay, after)
    reached = np.maximum(as_int64(single(rows.column(REACHED))), before)
    times = event_times(rows, ttl.on)
    times = np.where(times == LONG_AGO, reached, times)
    rows = rows.append_column(SEEN, pa.array(times))
    return Marked(rows, reached - delay, furthest - delay, after)


def ended(ttl: Ttl | None, meta: Mapping[str, Any]) -> tuple[int, int] | None:
    """(lifetime, the time up to which keys have ended) after a step; None: no key has."""
    if ttl is not None and "reached" in meta:
        return ttl.length_us, meta["reached"] - (ttl.delay_us or 0)
    return (ttl.length_us, meta["now"]) if ttl is not None and "now" in meta else None


def clocked(ttl: Ttl | None, meta: Any, now_us: int) -> Any:
    """What `KeyedLogic.at` gives: by processing time the step's own time, which never falls."""
    if ttl is None or ttl.on is not None:
        return meta
    return {"now": max(now_us, (meta or {}).get("now", now_us))}
