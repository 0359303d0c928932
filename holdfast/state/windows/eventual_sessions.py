"""Records of sessions. A session is known by its beginning and its key. One that takes over others, or that gets an earlier beginning,
is checked: the note that tells so of what it was made of holds its state.

Of two sessions of a key the earlier one is closed first. So a row that is not late belongs to the last open session that begins at or
before it, and to none if there is no such one: what it belonged to is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, as_int64, single
from holdfast.state.columns.hashing import HASH_COLUMN, I64, canonical_key
from holdfast.state.eventual.records import KIND, Kind, Position
from holdfast.state.eventual.scan import Units, marks_of
from holdfast.state.windows import session_windows
from holdfast.state.windows.eventual_rows import among
from holdfast.state.windows.session_windows import SESSION, Sessions


@dataclass(frozen=True)
class SessionUnits(Units):
    """The sessions of keys."""

    sessions: Sessions

    @property
    def aggregation(self) -> Aggregation:
        return self.sessions.aggregation

    def begun(self, marks: pa.Table) -> pa.Table:
        return self.aggregation.state_schema.empty_table()

    def changed(self, before: pa.Table, fresh: pa.Table, after: pa.Table, first: Position) -> pa.Table:
        """Records of the sessions that were opened, merged or gone. `before`, `after`: those that were open before the step and behind
        it; `fresh`: the step's own pieces; `first`: the position of the step's first row."""
        homes = session_windows.sessions_of(self.sessions, pa.concat_tables([before, fresh]))[
            : before.num_rows
        ]
        moved = homes != as_int64(single(before.column(SESSION)))
        taken_over = session_windows.begun_at(before, homes).filter(pa.array(moved))
        was_there = among(after, before, self.names)
        took_over = among(after, taken_over, self.names)
        kinds = (
            (after, ~was_there & ~took_over, Kind.OPENED, True),
            (after, ~was_there & took_over, Kind.MERGED, True),
            (after, was_there & took_over, Kind.MERGED, False),
            (before, ~among(before, after, self.names), Kind.GONE, False),
        )
        told = [
            marks_of(self.marks, of.filter(pa.array(mask)), kind, new, first) for of, mask, kind, new in kinds
        ]
        return pa.concat_tables(told)

    def checked(self, after: pa.Table, due: I64, marks: pa.Table) -> pa.Table:
        """State rows of the sessions that took over others, and of the due ones that have no other record of the step."""
        merged = marks.filter(pa.array(as_int64(single(marks.column(KIND))) == Kind.MERGED))
        is_due = np.isin(as_int64(single(after.column(HASH_COLUMN))), due) & ~among(after, marks, self.names)
        return after.filter(pa.array(is_due | among(after, merged, self.names)))

    def units_of(self, rows: pa.Table, times: I64, windows: pa.Table) -> list[pa.Array]:
        """To which of the open sessions rows belong: hash, beginning, key. Of a row of none, what no session is known by."""
        names, count = self.aggregation.by[1:], windows.num_rows
        own = as_int64(single(rows.column(HASH_COLUMN)))
        keys = [canonical_key(rows.column(name)) for name in names]
        both = [
            pa.concat_arrays([single(windows.column(name)), key])
            for name, key in zip(names, keys, strict=True)
        ]
        group = session_windows.groups(np.concatenate((session_windows.key_hashes(windows), own)), both)
        begins = np.concatenate((as_int64(single(windows.column(SESSION))), times))
        order = np.lexsort((np.arange(len(begins)) >= count, begins, group))
        last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), 0))
        is_one = (order[last] < count) & (group[order[last]] == group[order])
        found = np.empty(len(order), dtype=np.int64)
        found[order] = np.where(is_one, begins[order[last]], begins[order])
        found = found[count:]
        return [pa.array(session_windows.mixed(own, found)), pa.array(found), *keys]
