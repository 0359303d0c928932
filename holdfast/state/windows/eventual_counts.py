"""Records of windows over a number of rows. What is recorded of a key of sliding windows is its head and the panes that later windows
reach back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.arrays import within
from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.count_windows import CountWindows, by_hash
from holdfast.state.windows.eventual_rows import HEAD, RowUnits
from holdfast.state.windows.row_windows import SLOT


@dataclass(frozen=True)
class CountUnits(RowUnits):
    """The keys of count windows."""

    windows: CountWindows

    def heads(self, checks: pa.Table) -> I64:
        slots = as_int64(single(checks.column(SLOT)))
        hashes = self.windows.unslotted(as_int64(single(checks.column(HASH_COLUMN))), slots)
        keys = [single(checks.column(name)) for name in self.aggregation.by if name != SLOT]
        grouping = group_rows(hashes, keys)
        runs, is_head = grouping.runs, slots[grouping.order] == HEAD
        head = np.zeros(len(runs.starts), dtype=np.int64)
        head[runs.ids[is_head]] = grouping.order[is_head]
        found = np.empty(checks.num_rows, dtype=np.int64)
        found[grouping.order] = runs.spread(head)
        return found

    def empty(self, heads: pa.Table) -> Bools:
        had = self.had(heads)
        is_tumbling = self.windows.every == self.windows.size
        return had % self.windows.size == 0 if is_tumbling else np.zeros(len(had), dtype=np.bool_)

    def whole(self, segments: Sequence[Segment], heads: pa.Table) -> pa.Table:
        windows, had = self.windows, self.had(heads)
        if windows.panes == 1:
            return by_hash(heads)
        # The next window ends at the next multiple; it has so many panes, and the head's is stored by itself.
        end = (had // windows.every + 1) * windows.every // windows.pane_rows
        lowest = np.maximum(end - windows.panes, 0)
        count = np.maximum(windows.head(had) - lowest, 0)
        key = np.repeat(np.arange(len(count)), count)
        slots = windows.slots(lowest[key] + within(count))
        keys = heads.select(self.names).take(pa.array(key))
        wanted = by_hash(windows.state_rows(keys, slots, []))
        panes = find_rows(segments, wanted, self.aggregation).as_table()
        return by_hash(pa.concat_tables([heads, panes]))
