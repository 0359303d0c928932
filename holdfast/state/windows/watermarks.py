"""The watermark as a function of position: the largest event time up to a row, per source, minus a delay.

Where all rows of a step are at hand in the order of their positions, a running maximum gives it. Where each mapping
task has only some of them, it sends the rises of its own running maximum (*stairs*) to everybody, and these are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64

NEVER = np.iinfo(np.int64).min
"""No event time so far."""

CLOSED = 1 << 61
"""The time of a source that has come to its end: later than every event; delays can be taken away from it."""


def is_closed(time: int) -> bool:
    """Whether a watermark tells that nothing more comes."""
    return time > CLOSED >> 1


STAIRS = pa.schema(
    [("source", pa.int64()), ("ordinal", pa.int64()), ("row", pa.int64()), ("time", pa.int64())]
)


def running_maximum(sources: I64, times: I64) -> I64:
    """For rows in position order: the largest time of the same source up to each row."""
    if not len(times) or (sources == sources[0]).all():
        return np.maximum.accumulate(times)
    reached = np.empty_like(times)
    for source in np.unique(sources):
        of_source = sources == source
        reached[of_source] = np.maximum.accumulate(times[of_source])
    return reached


def stairs(positions: Sequence[I64], times: I64) -> pa.Table:
    """Where the running maximum rises, for rows in the order of their positions (source, ordinal, row)."""
    sources = positions[0]
    reached = running_maximum(sources, times)
    rises = np.ones(len(times), dtype=np.bool_)
    rises[1:] = (reached[1:] > reached[:-1]) | (sources[1:] != sources[:-1])
    chosen = np.flatnonzero(rises)
    columns = [column[chosen] for column in (*positions, reached)]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=STAIRS)


def join_stairs(parts: Sequence[pa.Table], sources: I64, ordinals: I64, rows: I64) -> I64:
    """For each position the largest time that a stair at or before it reaches, in its source."""
    joined = pa.concat_tables([STAIRS.empty_table(), *parts])
    stair_columns = [as_int64(single(joined.column(name))) for name in STAIRS.names]
    count = joined.num_rows
    # A stair sorts before the row at the same position: a row's own time counts.
    is_row = np.concatenate((np.zeros(count, dtype=np.int64), np.ones(len(rows), dtype=np.int64)))
    source = np.concatenate((stair_columns[0], sources))
    order = np.lexsort(
        (
            is_row,
            np.concatenate((stair_columns[2], rows)),
            np.concatenate((stair_columns[1], ordinals)),
            source,
        )
    )
    times = np.concatenate((stair_columns[3], np.full(len(rows), NEVER)))
    reached = np.empty(len(times), dtype=np.int64)
    reached[order] = running_maximum(source[order], times[order])
    return reached[count:]


def maxima(sources: I64, times: I64) -> dict[int, int]:
    """The largest time of each source."""
    return {int(source): int(times[sources == source].max()) for source in np.unique(sources)}


def raised(before: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    return {source: max(before.get(source, NEVER), more.get(source, NEVER)) for source in {**before, **more}}


def watermark(reached: Mapping[int, int], delays: Mapping[int, int]) -> int | None:
    """The minimum over all sources that have a delay; None as long as one of them has not said anything."""
    if not delays or any(source not in reached for source in delays):
        return None
    return min(reached[source] - delay for source, delay in delays.items())
