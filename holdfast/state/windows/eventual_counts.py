"""Records of windows over rows. A window is known by its key, and by how many rows the key had when it began.

A key of tumbling windows has always one that is open: after a result the next one is, and is empty until the key's next row. Sliding
windows overlap: what is recorded of a key is all it keeps, its head and the panes that later windows reach back to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, as_int64, single
from holdfast.state.columns.arrays import within
from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64, canonical_key
from holdfast.state.eventual.records import NUMBER, Kind
from holdfast.state.eventual.scan import Units
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.row_evolution import of_nothing
from holdfast.state.keyed.segment import Segment, segment_rows
from holdfast.state.windows.count_windows import HEAD, CountWindows, by_hash
from holdfast.state.windows.row_windows import SLOT, Touched


@dataclass(frozen=True)
class CountUnits(Units):
    """The keys of count windows."""

    windows: CountWindows

    @property
    def aggregation(self) -> Aggregation:
        return self.windows.aggregation

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

    def begun(self, marks: pa.Table) -> pa.Table:
        had = as_int64(single(marks.column(NUMBER)))
        marks, had = marks.filter(pa.array(had > 0)), had[had > 0]
        schema = self.aggregation.state_schema
        columns = {**of_nothing(self.aggregation, len(had)), schema.names[len(self.names)]: pa.array(had)}
        units = {name: single(marks.column(name)) for name in self.names}
        return pa.Table.from_arrays([{**columns, **units}[name] for name in schema.names], schema=schema)

    def units_of(self, rows: pa.Table) -> list[pa.Array]:
        """To which keys rows with hashes belong: hash, slot, key."""
        keys = [canonical_key(rows.column(name)) for name in self.aggregation.by if name != SLOT]
        slots = pa.array(np.full(rows.num_rows, HEAD, dtype=np.int64))
        return [single(rows.column(HASH_COLUMN)), slots, *keys]

    # --- what a step tells ---

    def opened_or_closed(self, touched: Touched, ordinals: I64, rows: I64) -> pa.Table:
        """Records of the step's keys. `ordinals`, `rows`: positions of its rows. What was closed again within the step left its
        result and no record of its own."""
        before, after, size = touched.before, touched.after, self.windows.size
        if self.windows.every < size:
            is_open, number = before == 0, np.zeros(len(after), dtype=np.int64)
            closed = np.zeros(len(after), dtype=np.bool_)
        else:
            number = after // size * size
            closed = after == number
            is_open = ~closed & (number >= before)
        marked = np.flatnonzero(is_open | closed)
        first = touched.grouping.starts[marked] + np.maximum(number[marked] - before[marked], 0)
        # Of a closed one the place is its last row; nobody asks for it.
        at = touched.grouping.order[np.where(closed[marked], first - 1, first)]
        kinds = np.where(closed[marked], Kind.CLOSED, Kind.OPENED)
        places = (ordinals[at], rows[at])
        return self._marks(
            touched.keys.take(pa.array(marked)), kinds, before[marked] == 0, places, number[marked]
        )

    def checked(self, segments: Sequence[Segment], due: I64, marks: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(records of the due windows that are empty, state rows of the others), after the step; without those that
        have `marks` of it."""
        heads = _with_hashes(segments, due, self.aggregation)
        heads = heads.filter(pa.array(as_int64(single(heads.column(SLOT))) == HEAD))
        heads = heads.filter(pa.array(~among(heads, marks, self.names)))
        had = as_int64(single(heads.column(len(self.names))))
        is_tumbling = self.windows.every == self.windows.size
        empty = (had % self.windows.size == 0) if is_tumbling else np.zeros(len(had), dtype=np.bool_)
        units = heads.filter(pa.array(empty)).select(self.names)
        none = np.zeros(units.num_rows, dtype=np.int64)
        again = self._marks(units, none + Kind.CLOSED, none > 0, (none, none), had[empty])
        filled = heads.filter(pa.array(~empty))
        return again, by_hash(pa.concat_tables([filled, self._panes(segments, filled, had[~empty])]))

    def _panes(self, segments: Sequence[Segment], heads: pa.Table, had: I64) -> pa.Table:
        """The finished panes that windows to come reach back to."""
        windows = self.windows
        if windows.panes == 1:
            return heads.slice(0, 0)
        # The next window ends at the next multiple; it has so many panes, and the head's is stored by itself.
        end = (had // windows.every + 1) * windows.every // windows.pane_rows
        lowest = np.maximum(end - windows.panes, 0)
        count = np.maximum(windows.head(had) - lowest, 0)
        key = np.repeat(np.arange(len(count)), count)
        slots = windows.slots(lowest[key] + within(count))
        keys = heads.select(self.names).take(pa.array(key))
        return find_rows(segments, by_hash(windows.state_rows(keys, slots, [])), self.aggregation).as_table()

    def _marks(
        self, units: pa.Table, kinds: I64, new: Bools, places: tuple[I64, I64], number: I64
    ) -> pa.Table:
        own = [kinds.astype(np.int8), new, *places, number]
        columns = [*map(pa.array, own), *(single(column) for column in units.columns)]
        return pa.Table.from_arrays(columns, schema=self.marks)


def _with_hashes(segments: Sequence[Segment], sought: I64, aggregation: Aggregation) -> pa.Table:
    """The newest state rows that have one of the hashes, which ascend."""
    tables = [aggregation.state_schema.empty_table()]
    for segment in reversed(segments):
        rows = segment_rows(segment, aggregation)
        first, end = rows.hashes.searchsorted(sought), rows.hashes.searchsorted(sought, side="right")
        count = end - first
        if count.any():
            tables.append(rows.table.take(pa.array(np.repeat(first, count) + within(count))))
    found = pa.concat_tables(tables)
    columns = [single(found.column(name)) for name in (HASH_COLUMN, *aggregation.by)]
    grouping = group_rows(as_int64(columns[0]), columns[1:])  # stable: the newest is first
    return found.take(pa.array(grouping.first_rows))


def among(units: pa.Table, others: pa.Table, names: Sequence[str]) -> Bools:
    """Which of the units are also among others."""
    both = pa.concat_tables([others.select(names), units.select(names)])
    columns = [single(column) for column in both.columns]
    grouping = group_rows(as_int64(columns[0]), columns[1:])
    is_other = grouping.order < others.num_rows
    known = np.zeros(both.num_rows, dtype=np.bool_)
    known[grouping.order] = grouping.runs.spread(grouping.runs.any(is_other).astype(np.int64)) > 0
    return known[others.num_rows :]
