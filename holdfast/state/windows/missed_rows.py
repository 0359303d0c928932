"""Count windows of operators that missed rows since their state was stored: keys go on behind the missed ones.

The last `size` rows of a key are fewer then: as many as it missed are rows of nobody. Its number of rows grows by them,
panes that they would have filled are empty, and what they would have pushed out is out of reach. Windows that they would
have completed are never emitted; later ones have fewer rows. Each key missed its share, by the rows it had among all so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.durable import remove_quietly
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.arrays import within
from holdfast.state.columns.hashing import I64
from holdfast.state.joins.window_pairs import share_of_key
from holdfast.state.keyed.keyed_map import advance, last_wins, ranges
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS, Bounds
from holdfast.state.keyed.row_evolution import of_nothing
from holdfast.state.keyed.segment import Place, Segment, Segments, segment_rows
from holdfast.state.windows.count_windows import HEAD, CountWindows, by_hash
from holdfast.state.windows.row_windows import SLOT


@dataclass(frozen=True, slots=True)
class Missed:
    """Of all keys together: rows had so far, rows missed."""

    had: int
    missed: int


def rows_had(windows: CountWindows, segments: Segments) -> int:
    """Of all keys of a partition."""
    return sum(
        int(_rows(windows, heads).sum()) for heads in _heads(windows, segments, DEFAULT_BOUNDS.piece_rows)
    )


def go_on(
    windows: CountWindows, segments: Segments, missed: Missed, place: Place, bounds: Bounds = DEFAULT_BOUNDS
) -> tuple[Segments, int]:
    """(a partition's segments after its share of the missed rows, how many rows those pushed out). Given segments are left
    where they are. No more rows are in memory than a merge may have."""
    gone, after = 0, segments
    at_once = max(_fitting(segments, bounds) // windows.panes, 1)
    for number, heads in enumerate(_heads(windows, segments, at_once)):
        rows = _rows(windows, heads)
        share = share_of_key(missed.missed, rows, missed.had)
        chosen = np.flatnonzero(share)
        if len(chosen):
            changed = _moved(windows, heads.take(pa.array(chosen)), rows[chosen], share[chosen])
            before = after
            own = replace(place, prefix=f"{place.prefix}-{number}")
            after = advance(before, changed, windows.aggregation, own, bounds=bounds)
            for segment in set(before).difference(after, segments):
                remove_quietly(segment.path)
            gone += int(np.minimum(np.minimum(rows, windows.size), share).sum())
    return after, gone


def _heads(windows: CountWindows, segments: Sequence[Segment], rows: int) -> Iterator[pa.Table]:
    """The heads of all keys, each once, at most `rows` at a time."""
    sources = [segment_rows(segment, windows.aggregation) for segment in segments]
    for slices in ranges(sources, _fitting(segments, DEFAULT_BOUNDS)):
        newest = last_wins(windows.aggregation, slices.tables)
        is_head = as_int64(single(newest.column(SLOT))) == HEAD
        heads = newest.take(pa.array(np.flatnonzero(is_head)))
        for start in range(0, heads.num_rows, rows):
            yield heads.slice(start, rows)


def _fitting(segments: Sequence[Segment], bounds: Bounds) -> int:
    """Rows that may be in memory at once, of wide ones fewer."""
    return bounds.fitting(sum(s.rows for s in segments), sum(s.bytes for s in segments)).piece_rows


def _rows(windows: CountWindows, heads: pa.Table) -> I64:
    return as_int64(single(heads.column(1 + len(windows.aggregation.by))))


def _moved(windows: CountWindows, heads: pa.Table, rows: I64, share: I64) -> pa.Table:
    """State rows of keys that go on from `rows` by `share`: the new heads, and before them, as far as a window can reach,
    the pane that was the head, and empty ones."""
    old, new = windows.head(rows), windows.head(rows + share)
    first = np.maximum(old, new - windows.panes + 1)
    count = new - first + 1
    key = np.repeat(np.arange(len(rows)), count)
    number = first[key] + within(count)
    parts = _with_nothing(windows, heads, np.where(number == old[key], key, -1))
    parts[0] = pa.array(np.minimum((number + 1) * windows.pane_rows, (rows + share)[key]))
    keys = heads.select(range(1 + len(windows.aggregation.by))).take(pa.array(key))
    slots = np.where(number == new[key], HEAD, windows.slots(number))
    return by_hash(windows.state_rows(keys, slots, parts))


def _with_nothing(windows: CountWindows, heads: pa.Table, chosen: I64) -> list[pa.Array]:
    """What the accumulators keep of the chosen heads; negative: of no row at all."""
    nothing = of_nothing(windows.aggregation, 1)
    names = windows.aggregation.state_schema.names[1 + len(windows.aggregation.by) :]
    source = pa.array(np.where(chosen < 0, heads.num_rows, chosen))
    return [pa.concat_arrays([single(heads.column(name)), nothing[name]]).take(source) for name in names]
