"""Records of windows over time. A window is known by its pane, the first window that the pane's rows count for, and its key: that is what
the state sums up. It is closed when the watermark has passed the last window that holds the pane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, as_int64, combine, single
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import HASH_COLUMN, I64, canonical_key
from holdfast.state.eventual.records import Kind, Position
from holdfast.state.eventual.scan import Units, marks_of
from holdfast.state.windows import time_windows
from holdfast.state.windows.eventual_rows import among
from holdfast.state.windows.time_windows import PANE, Windows


@dataclass(frozen=True)
class TimeUnits(Units):
    """The sums of windows over time."""

    windows: Windows

    @property
    def aggregation(self) -> Aggregation:
        return self.windows.aggregation

    def live(self, records: pa.Table, meta: Any) -> Bools:
        low = self.lowest(meta)
        return np.asarray(as_int64(single(records.column(PANE))) >= low)

    def lowest(self, meta: Any) -> int:
        """The first pane that is not closed."""
        watermark = (meta or {}).get("watermark")
        if watermark is None:
            return int(np.iinfo(np.int64).min)
        first = int(self.windows.first_open(np.array([watermark]))[0])
        # The first pane whose last window is that one or a later one.
        return -(-first * self.windows.slide_us // self.windows.pane_us)

    def begun(self, marks: pa.Table) -> pa.Table:
        return self.aggregation.state_schema.empty_table()

    def newly_open(self, before: Sequence[pa.Table], fresh: pa.Table, meta: Any, first: Position) -> pa.Table:
        """Records of the windows that the step's sums opened and that are still open after it. `first`: of the step's rows."""
        fresh = fresh.filter(pa.array(self.live(fresh, meta)))
        units = fresh.select(self.names)
        for table in before:
            hashes = as_int64(single(table.column(HASH_COLUMN)))
            near = table.filter(pa.array(np.isin(hashes, as_int64(single(units.column(HASH_COLUMN))))))
            units = units.filter(pa.array(~among(units, near, self.names)))
        return marks_of(self.marks, units, Kind.OPENED, True, first)

    def checked(self, after: Sequence[pa.Table], due: I64, meta: Any, marks: pa.Table) -> pa.Table:
        """State rows of the due windows that are open after the step, but for those that have `marks` of it."""
        found = [table.filter(pa.array(np.isin(_hashes(table), due))) for table in after]
        joined = combine(self.aggregation, [table for table in found if table.num_rows])
        joined = joined.filter(pa.array(self.live(joined, meta)))
        return joined.filter(pa.array(~among(joined, marks, self.names)))

    def units_of(self, rows: pa.Table, times: I64, first: I64) -> list[pa.Array]:
        """To which windows rows belong: hash, pane, first window, key. `first`: the first window open to each."""
        panes = times // self.windows.pane_us
        begins = np.maximum(self.windows.first_of(panes), first)
        hashes = time_windows.mixed(_hashes(rows), panes, begins)
        keys = [canonical_key(rows.column(name)) for name in self.aggregation.by[2:]]
        return [pa.array(hashes), pa.array(panes), pa.array(begins), *keys]


def _hashes(table: pa.Table) -> I64:
    return as_int64(single(table.column(HASH_COLUMN)))
