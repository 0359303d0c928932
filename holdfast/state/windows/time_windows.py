"""Aggregates over event-time windows, kept as panes.

A *pane* is the time between two moments at which some window begins or ends; windows consist of whole panes, so a row
is summed up once, in its pane, however many windows it belongs to. The state is a set of segments of sums per
(pane, first window, key) that are *added up*: a step writes its own sums and looks nothing up.

A row that came after some of its windows were closed, but not all, counts for the open ones only: `FROM` is the first
window that its sum counts for. What is closed follows from the watermark at the row's own position, so results do not
depend on where batches were cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import aggregation
from holdfast.state.aggregates.aggregation import Aggregate, Aggregation, as_int64, single
from holdfast.state.columns.arrays import within
from holdfast.state.columns.grouping import group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64

PANE = "__hf_pane"
FROM = "__hf_from"
START = "window_start"
END = "window_end"

_PANE_STEP = np.int64(-7046029254386353131)
_FROM_STEP = np.int64(-4417276706812531889)


@dataclass(frozen=True)
class Windows:
    """Windows number w = [w·slide, w·slide + size) in microseconds, and what is computed over them."""

    size_us: int
    slide_us: int
    lateness_us: int
    aggregation: Aggregation
    """By pane, first window and key."""

    @staticmethod
    def plan(
        size_us: int,
        slide_us: int,
        lateness_us: int,
        by: Sequence[str],
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
    ) -> Windows:
        widened = schema.append(pa.field(PANE, pa.int64())).append(pa.field(FROM, pa.int64()))
        return Windows(
            size_us, slide_us, lateness_us, Aggregation.plan((PANE, FROM, *by), aggregates, widened)
        )

    @cached_property
    def pane_us(self) -> int:
        return math.gcd(self.size_us, self.slide_us)

    def first_of(self, panes: I64) -> I64:
        """The first window that holds each pane."""
        return -(-((panes + 1) * self.pane_us - self.size_us) // self.slide_us)

    def last_of(self, panes: I64) -> I64:
        """The last window that holds each pane."""
        return panes * self.pane_us // self.slide_us

    def complete(self, watermark: int) -> int:
        """The last window that ended by `watermark`."""
        return (watermark - self.size_us) // self.slide_us

    def first_open(self, watermark: I64) -> I64:
        """The first window that still takes rows at `watermark`."""
        return (watermark - self.lateness_us - self.size_us) // self.slide_us + 1


def sums(windows: Windows, rows: pa.Table, times: I64, first: I64) -> tuple[pa.Table, I64]:
    """(sums of the rows that are not too late, the numbers of those that are).

    `rows` have hashes of their keys; `times` are their event times, `first` the first window open to each."""
    panes = times // windows.pane_us
    late = np.flatnonzero(windows.last_of(panes) < first)
    if len(late):
        kept = np.flatnonzero(windows.last_of(panes) >= first)
        rows, panes, first = rows.take(pa.array(kept)), panes[kept], first[kept]
    begins = np.maximum(windows.first_of(panes), first)
    hashes = as_int64(single(rows.column(HASH_COLUMN)))
    rows = rows.drop_columns([HASH_COLUMN])
    rows = rows.append_column(PANE, pa.array(panes)).append_column(FROM, pa.array(begins))
    rows = rows.append_column(HASH_COLUMN, pa.array(mixed(hashes, panes, begins)))
    return aggregation.partial(windows.aggregation, rows), late


def of_windows(windows: Windows, tables: Sequence[pa.Table], lowest: int | None, highest: int) -> pa.Table:
    """Sums per window and key for the windows from `lowest` (None: whatever there is) to `highest`.

    The window's number stands in the pane's column."""
    pieces = [_of_windows(windows, table, lowest, highest) for table in tables]
    return aggregation.combine(windows.aggregation, pieces)


def _of_windows(windows: Windows, table: pa.Table, lowest: int | None, highest: int) -> pa.Table:
    panes, begins = (as_int64(single(table.column(name))) for name in (PANE, FROM))
    low = np.maximum(windows.first_of(panes), begins)
    if lowest is not None:
        low = np.maximum(low, lowest)
    high = np.minimum(windows.last_of(panes), highest)
    times = np.maximum(high - low + 1, 0)
    rows = np.repeat(np.arange(len(panes)), times)
    numbers = low[rows] + within(times)
    zero = np.zeros(len(rows), dtype=np.int64)
    hashes = as_int64(single(table.column(HASH_COLUMN)))
    keys = _unmixed(hashes, panes, begins)[rows]
    taken = table.take(pa.array(rows))
    for name, values in ((HASH_COLUMN, mixed(keys, numbers, zero)), (PANE, numbers), (FROM, zero)):
        index = taken.schema.get_field_index(name)
        taken = taken.set_column(index, taken.schema.field(index), pa.array(values))
    return taken


def results(windows: Windows, sums_of_windows: pa.Table, time_type: pa.DataType) -> pa.Table:
    """Output rows: begin and end of the window, key, results."""
    table = aggregation.finish(windows.aggregation, sums_of_windows)
    starts = as_int64(single(table.column(PANE))) * windows.slide_us
    table = table.drop_columns([PANE, FROM])
    table = table.add_column(0, START, pa.array(starts).cast(time_type))
    return table.add_column(1, END, pa.array(starts + windows.size_us).cast(time_type))


def among(windows: Windows, sums_of_windows: pa.Table, changed: pa.Table) -> pa.Table:
    """Those rows whose window and key also occur in `changed`."""
    names = [HASH_COLUMN, *windows.aggregation.by]
    both = pa.concat_tables([sums_of_windows.select(names), changed.select(names)])
    columns = [single(column) for column in both.columns]
    grouping = group_rows(as_int64(columns[0]), columns[1:])
    group = np.repeat(np.arange(len(grouping.starts)), np.diff(grouping.starts, append=len(grouping.order)))
    from_changed = grouping.order >= sums_of_windows.num_rows
    marked = np.zeros(len(grouping.starts), dtype=np.bool_)
    marked[group[from_changed]] = True
    rows = grouping.order[~from_changed & marked[group]]
    return sums_of_windows.take(pa.array(np.sort(rows)))


def live(windows: Windows, table: pa.Table, watermark: int | None) -> pa.Table:
    """The sums that some window still open may need."""
    if watermark is None:
        return table
    panes = as_int64(single(table.column(PANE)))
    needed = windows.last_of(panes) >= windows.first_open(np.array([watermark]))
    return table if needed.all() else table.filter(pa.array(needed))


def key_hashes(table: pa.Table) -> I64:
    """The hashes of the keys alone, which decide who owns a row."""
    hashes, panes, begins = (as_int64(single(table.column(name))) for name in (HASH_COLUMN, PANE, FROM))
    return _unmixed(hashes, panes, begins)


def mixed(hashes: I64, panes: I64, begins: I64) -> I64:
    """One number per (pane, first window, key). It wraps around: only equality and spread matter."""
    with np.errstate(over="ignore"):
        return np.asarray(hashes + panes * _PANE_STEP + begins * _FROM_STEP)


def _unmixed(mixed: I64, panes: I64, begins: I64) -> I64:
    with np.errstate(over="ignore"):
        return np.asarray(mixed - panes * _PANE_STEP - begins * _FROM_STEP)
