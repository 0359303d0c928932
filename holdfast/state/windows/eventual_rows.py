"""Records of windows over the rows of a key. A window is known by its key, and by how many rows the key had when it began.

A key has always a window that is open: after a result the next one is, and may be empty until the key's next row. Sliding windows overlap:
what is recorded of a key is all it keeps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, as_int64, single
from holdfast.state.columns.arrays import within
from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64, canonical_key
from holdfast.state.eventual.records import NUMBER, Kind
from holdfast.state.eventual.scan import Units, marks_of
from holdfast.state.keyed.row_evolution import of_nothing
from holdfast.state.keyed.segment import Segment, segment_rows
from holdfast.state.windows.row_windows import SLOT, RowWindows, Touched

HEAD = 0
"""The slot of the state row that tells how many rows its key has had."""


class RowUnits(Units):
    """The keys of windows over rows."""

    windows: RowWindows

    @property
    def aggregation(self) -> Aggregation:
        return self.windows.map

    def begun(self, marks: pa.Table) -> pa.Table:
        had = as_int64(single(marks.column(NUMBER)))
        marks, had = marks.filter(pa.array(had > 0)), had[had > 0]
        schema = self.aggregation.state_schema
        if not len(had):
            return schema.empty_table()
        counted = schema.names[len(self.names)]
        columns = {
            **of_nothing(self.aggregation, len(had)),
            counted: pa.array(had),
            **self.empty_state(len(had)),
        }
        units = {name: single(marks.column(name)) for name in self.names}
        return pa.Table.from_arrays([{**columns, **units}[name] for name in schema.names], schema=schema)

    def empty_state(self, count: int) -> dict[str, pa.Array]:
        """What stands in so many state rows of windows whose first row is still to come, if not nothing."""
        return {}

    @abstractmethod
    def empty(self, heads: pa.Table) -> Bools:
        """Which of the keys have a window without rows."""

    def units_of(self, rows: pa.Table) -> list[pa.Array]:
        """To which keys rows with hashes belong: hash, slot, key."""
        keys = [canonical_key(rows.column(name)) for name in self.aggregation.by if name != SLOT]
        slots = pa.array(np.full(rows.num_rows, HEAD, dtype=np.int64))
        return [single(rows.column(HASH_COLUMN)), slots, *keys]

    # --- what a step tells ---

    def opened_or_closed(self, touched: Touched, ordinals: I64, rows: I64) -> pa.Table:
        """Records of the step's keys. `ordinals`, `rows`: positions of its rows. What was closed again within the step left its
        result and no record of its own."""
        before, number, closed = touched.before, touched.began, touched.closed
        marked = np.flatnonzero(closed | (number >= before))
        first = touched.grouping.starts[marked] + np.maximum(number[marked] - before[marked], 0)
        # Of a closed one the place is its last row; nobody asks for it.
        at = touched.grouping.order[np.where(closed[marked], first - 1, first)]
        kinds = np.where(closed[marked], Kind.CLOSED, Kind.OPENED)
        units = touched.keys.take(pa.array(marked))
        return marks_of(
            self.marks, units, kinds, before[marked] == 0, (ordinals[at], rows[at]), number[marked]
        )

    def checked(self, segments: Sequence[Segment], due: I64, marks: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(records of the due windows that are empty, state rows of the others), after the step; without those that
        have `marks` of it."""
        heads = with_hashes(segments, due, self.aggregation)
        heads = heads.filter(pa.array(as_int64(single(heads.column(SLOT))) == HEAD))
        heads = heads.filter(pa.array(~among(heads, marks, self.names)))
        empty = self.empty(heads)
        units = heads.filter(pa.array(empty))
        again = marks_of(self.marks, units, Kind.CLOSED, False, (0, 0), self.had(units))
        return again, self.whole(segments, heads.filter(pa.array(~empty)))

    def had(self, heads: pa.Table) -> I64:
        """How many rows their keys have had."""
        return as_int64(single(heads.column(len(self.names))))

    def whole(self, segments: Sequence[Segment], heads: pa.Table) -> pa.Table:
        """All state rows of the keys of some heads."""
        return heads


def with_hashes(segments: Sequence[Segment], sought: I64, aggregation: Aggregation) -> pa.Table:
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
