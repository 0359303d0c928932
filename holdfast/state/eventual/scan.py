"""The backward scan: from notes, newest first, to the windows that were open when the last one was written.

The newest note tells how many windows were open; the scan ends when it has found a record of each. Of a window its newest record
counts. Windows over time that the newest watermark has closed are passed over, and so are sessions that are gone. A window over rows
whose result is its newest record has nothing to replay, so it does not hold the replay back.

Each found window says from where on it takes rows: behind the last row of its checked state, or from the row that opened it on. The
replay begins before the oldest of them, and every window ignores rows before its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import DamagedError
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, single
from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.eventual.records import (
    BEFORE_ALL,
    KIND,
    NEW,
    NUMBER,
    ORDINAL,
    ROW,
    Kind,
    Note,
    Part,
    Position,
    Standing,
    marks_schema,
)

ALL_ROWS = np.iinfo(np.int64).max
"""The ordinal behind which a window takes rows whose result is its newest record: there are none."""
WHERE = "__hf_note"
AFTER = (ORDINAL, ROW)


class Units(ABC):
    """Which windows an operator has, as state rows tell them. Plain data."""

    @property
    @abstractmethod
    def aggregation(self) -> Aggregation:
        """What its state rows look like: hash, what says which window it is, what is kept."""

    @property
    def marks(self) -> pa.Schema:
        """Columns of records without state."""
        schema = self.aggregation.state_schema
        return marks_schema([schema.field(n) for n in range(1 + len(self.aggregation.by))])

    @property
    def names(self) -> list[str]:
        """The columns that say which window it is, hash first."""
        return [HASH_COLUMN, *self.aggregation.by]

    def reached(self, ordinals: I64, rows: I64) -> pa.Table:
        """The last of a step's positions, as a record; none if there are no rows."""
        if not len(ordinals):
            return self.marks.empty_table()
        own = {KIND: Kind.REACHED, NEW: False, NUMBER: 0, HASH_COLUMN: 0}
        own |= dict(zip(AFTER, last_of(ordinals, rows), strict=True))
        columns = [pa.array([own.get(field.name)], field.type) for field in self.marks]
        return pa.Table.from_arrays(columns, schema=self.marks)

    def heads(self, checks: pa.Table) -> I64:
        """For each state row the row that stands for its window."""
        return np.arange(checks.num_rows)

    def live(self, records: pa.Table, meta: Any) -> Bools:
        """Which of these records are of windows that are open where `meta` is the newest."""
        return np.ones(records.num_rows, dtype=np.bool_)

    @abstractmethod
    def begun(self, marks: pa.Table) -> pa.Table:
        """State rows of windows of which nothing but a record without state was found."""


@dataclass(frozen=True, slots=True)
class Found:
    """A note that a scan has read."""

    number: int
    at: int
    """Which of the parts that were read holds it, from 0 on."""
    source: Any
    """The source's snapshot before its step."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a scan found."""

    newest: Note
    state: pa.Table
    """State rows, as of different positions."""
    windows: pa.Table
    """A row per window: columns of marks; ordinal and row are those behind which it takes rows."""
    since_us: I64
    """The time of the input when its newest record was written."""
    noted: I64
    """The number of the note that has it."""
    start: Standing | None
    """Where the replay begins. None: there is nothing to replay."""
    notes: tuple[Found, ...]
    """Those that were read, oldest first."""
    bytes: int


@dataclass
class BackwardScan:
    """Fed with parts of notes, newest first, until it is done."""

    units: Units
    newest: Note | None = None
    notes: list[Note] = field(default_factory=list)
    bytes: int = 0
    _fed: int = 0
    _found_at: list[int] = field(default_factory=list)
    _more: int = 0
    """So many of the next parts belong to the last note."""
    _checks: list[list[pa.Table]] = field(default_factory=list)
    """By note."""
    _pending: list[pa.Table] = field(default_factory=list)
    _found: pa.Table = None

    def feed(self, part: Part) -> bool:
        """True: nothing more is needed. Parts whose note was never written count for nothing."""
        self.bytes += part.bytes
        self._fed += 1
        if part.note is not None:
            self.notes.append(part.note)
            self._found_at.append(self._fed - 1)
            self._checks.append([])
            self.newest, self._more = self.newest or part.note, part.more
        elif self._more:
            self._more -= 1
        else:
            return False
        self._add(part)
        return not self._more and self._is_done()

    def result(self) -> Restored | None:
        """What was found; None: there is no note. DamagedError: fewer windows than there should be, or more."""
        if self.newest is None:
            return None
        self._settle()
        found = self._open
        if found != self.newest.n_open or self._more:
            raise DamagedError(
                f"the log tells of {self.newest.n_open} open windows, and {found} are found in it.",
                cure="Restore the log from a backup, or begin another one. Nothing was changed.",
            )
        return self._restored(self.newest)

    # --- finding ---

    def _is_done(self) -> bool:
        assert self.newest is not None
        had = 0 if self._found is None else self._found.num_rows
        wanted, come = self.newest.n_open - self._open, sum(table.num_rows for table in self._pending)
        # Looked at when it may be enough, and when as much has come as to pay for it.
        if wanted and come < max(wanted, had // 4):
            return False
        self._settle()
        return self._open >= self.newest.n_open

    @property
    def _open(self) -> int:
        """How many open windows are found."""
        return 0 if self._found is None else int(np.count_nonzero(_longs(self._found, KIND) != Kind.GONE))

    def _add(self, part: Part) -> None:
        """The records of a part as rows by window."""
        assert self.newest is not None
        number = len(self.notes) - 1
        if part.checks.num_rows:
            self._checks[number].append(part.checks.cast(self.units.aggregation.state_schema))
        for table in (self._of_marks(part.marks), self._of_checks(part.checks)):
            live = table.filter(pa.array(self.units.live(table, self.newest.after.meta)))
            if live.num_rows:
                where = pa.array(np.full(live.num_rows, number))
                self._pending.append(live.append_column(WHERE, where))

    def _of_marks(self, marks: pa.Table) -> pa.Table:
        schema = self.units.marks
        if not marks.num_rows:
            return schema.empty_table()
        marks = marks.select(schema.names).cast(schema)
        marks = marks.filter(pa.array(_longs(marks, KIND) != Kind.MERGED))  # its state is in the note
        # Behind which row it takes rows: of an opened window the one before its first, of a closed one there is none.
        opened = _longs(marks, KIND) == Kind.OPENED
        ordinal = np.where(opened, _longs(marks, ORDINAL), ALL_ROWS)
        row = np.where(opened, _longs(marks, ROW) - 1, ALL_ROWS)
        return _with(_with(marks, ORDINAL, ordinal), ROW, row)

    def _of_checks(self, checks: pa.Table) -> pa.Table:
        if not checks.num_rows:
            return self.units.marks.empty_table()
        units = checks.select(self.units.names).take(pa.array(np.unique(self.units.heads(checks))))
        count = units.num_rows
        own = [
            pa.array(np.full(count, Kind.CHECKED, dtype=np.int8)),
            pa.array(np.zeros(count, dtype=np.bool_)),
            *(pa.array(np.full(count, each, dtype=np.int64)) for each in (*self.notes[-1].upto, 0)),
        ]
        return pa.Table.from_arrays([*own, *(single(c) for c in units.columns)], schema=self.units.marks)

    def _settle(self) -> None:
        """Of each window the newest record."""
        empty = self.units.marks.empty_table().append_column(WHERE, pa.array([], pa.int64()))
        joined = pa.concat_tables([empty if self._found is None else self._found, *self._pending])
        self._pending = []
        columns = [single(joined.column(name)) for name in self.units.names]
        grouping = group_rows(as_int64(columns[0]), columns[1:])
        # It is stable, and the newest come first.
        self._found = joined.take(pa.array(np.sort(grouping.first_rows)))

    # --- what was found ---

    def _restored(self, newest: Note) -> Restored:
        found = self._found.filter(pa.array(_longs(self._found, KIND) != Kind.GONE))
        where, kinds = _longs(found, WHERE), _longs(found, KIND)
        found = found.select(self.units.marks.names)
        is_checked = kinds == Kind.CHECKED
        tables = [self.units.begun(found.filter(pa.array(~is_checked)))]
        for number in np.unique(where[is_checked]).tolist():
            chosen = found.filter(pa.array(is_checked & (where == number)))
            tables.append(self._state_of(pa.concat_tables(self._checks[number]), chosen))
        state = pa.concat_tables(tables)
        order = np.argsort(_longs(state, HASH_COLUMN), kind="stable")
        times = np.array([note.now_us for note in self.notes], dtype=np.int64)
        noted = np.array([note.number for note in self.notes], dtype=np.int64)
        start = self._start(where, kinds)
        read = [
            Found(note.number, at, note.before.source)
            for note, at in zip(self.notes, self._found_at, strict=True)
        ]
        figures = (times[where], noted[where], start, tuple(read[::-1]), self.bytes)
        return Restored(newest, state.take(pa.array(order)), found, *figures)

    def _state_of(self, checks: pa.Table, chosen: pa.Table) -> pa.Table:
        """The state rows of the chosen windows."""
        heads = self.units.heads(checks)
        units = pa.concat_tables(
            [chosen.select(self.units.names), checks.select(self.units.names).take(pa.array(heads))]
        )
        columns = [single(units.column(name)) for name in self.units.names]
        grouping = group_rows(as_int64(columns[0]), columns[1:])
        wanted = grouping.runs.any(grouping.order < chosen.num_rows)
        is_of_one = np.zeros(units.num_rows, dtype=np.bool_)
        is_of_one[grouping.order] = grouping.runs.spread(wanted.astype(np.int64)) > 0
        return checks.filter(pa.array(is_of_one[chosen.num_rows :]))

    def _start(self, where: I64, kinds: I64) -> Standing | None:
        """Before the oldest row that some window has to take again."""
        held = kinds != Kind.CLOSED
        # Twice the note, one more for what stands before it: the largest is the oldest.
        oldest = int((2 * where[held] + (kinds[held] == Kind.OPENED)).max(initial=0))
        note = self.notes[oldest // 2]
        return (note.before if oldest % 2 else note.after) if oldest else None


def marks_of(
    schema: pa.Schema, units: pa.Table, kind: I64 | Kind, new: Bools | bool, place: tuple[Any, Any], number: I64 | int = 0
) -> pa.Table:  # fmt: skip
    """Records without state, one for each of the units. What is not an array is the same for all."""
    values = {KIND: kind, NEW: new, ORDINAL: place[0], ROW: place[1], NUMBER: number}
    own = [
        pa.array(np.full(units.num_rows, value), schema.field(name).type) for name, value in values.items()
    ]
    named = [single(units.column(name)) for name in schema.names[len(own) :]]
    return pa.Table.from_arrays([*own, *named], schema=schema)


def last_of(ordinals: I64, rows: I64) -> Position:
    """The last of some positions; before all others if there is none."""
    if not len(ordinals):
        return BEFORE_ALL
    highest = ordinals.max()
    return int(highest), int(rows[ordinals == highest].max())


def takes(windows: pa.Table, rows: Sequence[pa.Array], positions: tuple[I64, I64], upto: Position) -> Bools:
    """Which rows their windows have to take again. `windows`: units, hash first, and behind which position each takes rows; `rows`:
    the same columns of rows. A row of no window is not taken."""
    count = windows.num_rows
    if not count:
        return np.zeros(len(positions[0]), dtype=np.bool_)
    names = [name for name in windows.column_names if name not in AFTER]
    own = [single(windows.column(name)) for name in names]
    columns = [pa.concat_arrays([first, second]) for first, second in zip(own, rows, strict=True)]
    grouping = group_rows(as_int64(columns[0]), columns[1:])
    # Windows stand first, each once: where a group begins with one, that is its window.
    head = grouping.first_rows
    window = np.empty(len(grouping.order), dtype=np.int64)
    window[grouping.order] = grouping.runs.spread(np.where(head < count, head, -1))
    window = window[count:]
    ordinal, row = positions
    after_ordinal, after_row = (_longs(windows, name)[window] for name in AFTER)
    is_after = (ordinal > after_ordinal) | ((ordinal == after_ordinal) & (row > after_row))
    is_known = (ordinal < upto[0]) | ((ordinal == upto[0]) & (row <= upto[1]))
    return np.asarray((window >= 0) & is_after & is_known)


def _longs(table: pa.Table, name: str) -> I64:
    return as_int64(single(table.column(name)))


def _with(table: pa.Table, name: str, values: I64) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values))
