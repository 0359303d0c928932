"""What a windowed aggregate writes about its windows into its output log: one *note* per step that has something to tell.

A note stands in one frame with the results of its step, so neither is ever there without the other. It holds *records*, at most
one per window, and what is the same for all of them: the number of open windows after it, and where the input stood before and
behind the step.

    OPENED   rows of the window begin at a position; that row is not in any stored state
    CLOSED   the window gave its result. Of windows over rows the next one of the key is open and empty since
    CHECKED  the state of the window, with all rows up to the note's last position
    MERGED   a session that took over others, or earlier rows: it has a new beginning or new rows from before, so it is also CHECKED
    GONE     a session that gave its result or was taken over: it is not counted any more

Windows of a fixed length of time are closed by the note's watermark: they need no record of it. Page: docs/formats/eventual.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import pyarrow as pa

from holdfast.errors import DamagedError
from holdfast.state.columns import arrow_frames
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.values import codec
from holdfast.state.values.plain_types import as_stream

MAGIC = b"HFEC"
VERSION = 1
RECORDS_PER_PART = 1 << 16
"""More records than these are written as several parts: a note of a log has a bounded size."""

KIND, NEW, ORDINAL, ROW, NUMBER = "kind", "new", "ordinal", "row", "number"
RECORD_COLUMNS = frozenset((KIND, NEW, ORDINAL, ROW, NUMBER))
"""They stand beside the columns that say which window it is."""
Position = tuple[int, int]
"""Of a row in its source: ordinal, row."""
BEFORE_ALL: Position = (-1, -1)


class Kind(IntEnum):
    """What a record tells of its window."""

    REACHED = 0
    """Of no window: the last row that came to a partition in the step. Notes do not have it."""
    OPENED = 1
    CLOSED = 2
    CHECKED = 3
    MERGED = 4
    GONE = 5


def marks_schema(unit: Sequence[pa.Field]) -> pa.Schema:
    """Columns of records without state. `unit`: the columns that say which window it is, hash first."""
    own = [
        pa.field(KIND, pa.int8()),
        pa.field(NEW, pa.bool_()),
        pa.field(ORDINAL, pa.int64()),
        pa.field(ROW, pa.int64()),
        pa.field(NUMBER, pa.int64()),
    ]
    return pa.schema([*own, *unit])


def unit_columns(table: pa.Table) -> list[str]:
    """Of records without state: the columns that say which window it is, without the hash."""
    own = (KIND, NEW, ORDINAL, ROW, NUMBER, HASH_COLUMN)
    return [name for name in table.column_names if name not in own]


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand between two steps: the source's snapshot and what all partitions of the operator share."""

    source: Any = None
    meta: Any = None


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """A record of a window of a join, the last rows of one of its streams: OPENED or CHECKED. Its rows are all behind a position."""

    side: int
    kind: Kind
    rows: int
    """How many rows the stream had brought there."""
    source: Any
    """The snapshot of its source there."""


@dataclass(frozen=True, slots=True)
class Note:
    """The records of one step. Plain data."""

    number: int
    made: str
    """What the operator is: another one cannot go on from its records."""
    n_open: int
    """Windows that are open after the step: so many has a scan to find."""
    before: Standing
    after: Standing
    upto: Position
    """The last row that has reached the operator: checked state holds rows up to it."""
    counts: Mapping[str, int] = field(default_factory=dict)
    now_us: int = 0
    """The time of the input at the step, by which windows become slow."""
    marks: pa.Table = None
    """Records without state: all but CHECKED."""
    checks: pa.Table = None
    """State rows of CHECKED windows."""
    windows: tuple[JoinWindow, ...] = ()
    """Of a join, which has no others."""

    @property
    def records(self) -> int:
        return int(self.marks.num_rows + self.checks.num_rows) + len(self.windows)


@dataclass(frozen=True, slots=True)
class Part:
    """A note, or records that belong to one and were too many for it: those come first, and count only with it."""

    number: int
    marks: pa.Table
    checks: pa.Table
    note: Note | None
    more: int
    """How many parts stand before a note that belong to it."""
    bytes: int


def encode(note: Note, at_once: int = RECORDS_PER_PART) -> list[bytes]:
    """The parts of a note in the order in which they are written. The last is the note."""
    marks, checks = _cut(note.marks, at_once), _cut(note.checks, at_once)
    whole = {
        "made": note.made,
        "n_open": note.n_open,
        "before": [note.before.source, note.before.meta],
        "after": [note.after.source, note.after.meta],
        "upto": list(note.upto),
        "counts": dict(note.counts),
        "now_us": note.now_us,
    }
    if note.windows:
        whole["windows"] = [[each.side, int(each.kind), each.rows, each.source] for each in note.windows]
    more = [(piece, note.checks.slice(0, 0)) for piece in marks[:-1]]
    more += [(note.marks.slice(0, 0), piece) for piece in checks[:-1]]
    parts = [_part(note.number, *tables, None) for tables in more]
    return [*parts, _part(note.number, marks[-1], checks[-1], {**whole, "more": len(parts)})]


def _cut(table: pa.Table, at_once: int) -> list[pa.Table]:
    return [table.slice(first, at_once) for first in range(0, table.num_rows, at_once)] or [table]


def _part(number: int, marks: pa.Table, checks: pa.Table, whole: Mapping[str, Any] | None) -> bytes:
    data = {"number": number, "note": whole, "marks": _bytes(marks), "checks": _bytes(checks)}
    return MAGIC + bytes([VERSION]) + codec.encode(data, path="note")


def _bytes(table: pa.Table) -> bytes:
    """Without records nothing: the schema alone would be most of a small note."""
    return as_stream(table) if table.num_rows else b""


def decode(data: bytes) -> Part | None:
    """What `encode` wrote. None: it is a note of somebody else. DamagedError: of a form that is not known."""
    if data[:4] != MAGIC:
        return None
    if data[4:5] != bytes([VERSION]):
        found = data[4] if len(data) > 4 else "none"
        raise DamagedError(
            f"records of windows are of version {found}, and {VERSION} is known.",
            cure="Use the release that wrote them.",
        )
    found = codec.decode(data[5:])
    try:
        return _part_of(found, len(data))
    except (TypeError, ValueError, LookupError, ArithmeticError, OSError, pa.ArrowException) as error:
        raise DamagedError(
            f"records of windows hold what holdfast never writes ({type(error).__name__}: {error}).",
            cure="Restore the log from a backup.",
        ) from error


def _part_of(found: Any, size: int) -> Part:
    marks, checks = _table(found["marks"]), _table(found["checks"])
    number, whole = found["number"], found["note"]
    if whole is None:
        return Part(int(number), marks, checks, None, 0, size)
    note = Note(
        number,
        whole["made"],
        whole["n_open"],
        Standing(*whole["before"]),
        Standing(*whole["after"]),
        (whole["upto"][0], whole["upto"][1]),
        whole["counts"],
        whole["now_us"],
        marks,
        checks,
        tuple(JoinWindow(side, Kind(kind), rows, at) for side, kind, rows, at in whole.get("windows", ())),
    )
    return Part(int(number), marks, checks, note, int(whole["more"]), size)


def _table(data: bytes) -> pa.Table:
    return arrow_frames.read_stream(data) if data else pa.table({})


def described(part: Part) -> Iterator[str]:
    """For people: a line for the note, and one for each record."""
    note = part.note
    if note is None:
        yield f"note {part.number}, a part: {part.marks.num_rows + part.checks.num_rows} records"
    else:
        upto = "" if note.upto == BEFORE_ALL else f", rows up to {note.upto[0]}:{note.upto[1]}"
        yield f"note {note.number}: {note.records} records, {note.n_open} windows open{upto}"
        for each in note.windows:
            yield f"  {each.kind.name.lower():8}the {('left', 'right')[each.side]} window: rows from {each.rows} on"
    for row in part.marks.to_pylist():
        place = f" at {row[ORDINAL]}:{row[ROW]}" if row[KIND] == Kind.OPENED else ""
        yield f"  {Kind(row[KIND]).name.lower():8}{_unit(row, unit_columns(part.marks))}{place}, number {row[NUMBER]}"
    for row in part.checks.to_pylist():
        yield f"  {'checked':8}{_unit(row, [name for name in row if name != HASH_COLUMN])}"


def _unit(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return " ".join(f"{name.removeprefix('__hf_')}={row[name]}" for name in names)
