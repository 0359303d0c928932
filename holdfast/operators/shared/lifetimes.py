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

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.values import Ttl
from holdfast.operators.shared.logic import (
    Share,
    by_position,
    longs,
    noted_shares,
    own_rows,
    split,
    with_hashes,
)
from holdfast.operators.shared.timed import REACHED, STAIRS_NOTE, as_bytes, joined_shares
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.expiry import LONG_AGO, SEEN
from holdfast.state.windows.watermarks import stairs


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
    rows: pa.Table, by: Sequence[str], ttl: Ttl | None, partition: int, partitions: int
) -> Arrived | None:
    """What `KeyedLogic.own` gives."""
    if ttl is None or ttl.on is None:
        mine = own_rows(rows, by, partition, partitions)
        return Arrived(mine) if mine.num_rows else None
    rows = by_position(rows)
    reached = np.maximum.accumulate(event_times(rows, ttl.on))
    timed = rows.append_column(REACHED, pa.array(reached))
    return Arrived(own_rows(timed, by, partition, partitions), int(reached[-1]) if len(reached) else LONG_AGO)


def shares(rows: pa.Table, by: Sequence[str], ttl: Ttl | None, partitions: int) -> dict[int, pa.Table]:
    """What `KeyedLogic.shares` gives."""
    if ttl is None or ttl.on is None:
        return split(with_hashes(rows, by), partitions)
    rows = by_position(rows)
    positions = [longs(rows, name) for name in POSITION_COLUMNS]
    note = {STAIRS_NOTE: as_bytes(stairs(positions, event_times(rows, ttl.on)))}
    return noted_shares(rows, by, note, partitions)


def gather(given: Sequence[Share], ttl: Ttl | None) -> Arrived | None:
    """What `KeyedLogic.gather` gives."""
    if not given:
        return None
    if ttl is None or ttl.on is None:
        return Arrived(pa.concat_tables([rows for _, rows in given]))
    rows, steps = joined_shares([rows for _, rows in given])
    return Arrived(rows, int(longs(steps, "time").max(initial=LONG_AGO)))


def event_times(rows: pa.Table, on: str) -> I64:
    """In microseconds; rows without one have `LONG_AGO`."""
    times = single(rows.column(on)).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return np.maximum(as_int64(times.fill_null(LONG_AGO)), LONG_AGO)


def marked(arrived: Arrived, ttl: Ttl | None, meta: Any) -> Marked:
    """`meta`: by event time {"reached": the largest so far}, by processing time {"now": when the step began}."""
    rows = arrived.rows
    if POSITION_COLUMNS[0] in rows.column_names:
        rows = by_position(rows)
    count = rows.num_rows
    if ttl is None:
        return Marked(rows, np.full(count, LONG_AGO), LONG_AGO, meta)
    if ttl.on is None:
        now = np.full(count, meta["now"], dtype=np.int64)
        return Marked(rows.append_column(SEEN, pa.array(now)), now, meta["now"], meta)
    before = (meta or {}).get("reached", LONG_AGO)
    reached = np.maximum(as_int64(single(rows.column(REACHED))), before)
    times = event_times(rows, ttl.on)
    times = np.where(times == LONG_AGO, reached, times)
    furthest = max(before, arrived.reached)
    rows = rows.append_column(SEEN, pa.array(times))
    return Marked(rows, reached - ttl.delay_us, furthest - ttl.delay_us, {"reached": furthest})


def ended(ttl: Ttl | None, meta: Mapping[str, Any]) -> tuple[int, int] | None:
    """(lifetime, the time up to which keys have ended) after a step; None: no key has."""
    if ttl is not None and "reached" in meta:
        return ttl.length_us, meta["reached"] - ttl.delay_us
    return (ttl.length_us, meta["now"]) if ttl is not None and "now" in meta else None


def clocked(ttl: Ttl | None, meta: Any, now_us: int) -> Any:
    """What `KeyedLogic.at` gives: by processing time the step's own time, which never falls."""
    if ttl is None or ttl.on is not None:
        return meta
    return {"now": max(now_us, (meta or {}).get("now", now_us))}
