"""The windows of a join, each the last rows of one of its streams: where their rows begin, and the backward scan that finds it again.

What a window holds follows from its stream alone: it is the last rows of it. So a record needs no state. It tells a position before the
oldest row that is still in the window, as a snapshot of the stream's source and a number of rows; a restore has the rows from there on
again, and drops those that have fallen out.

Must hold, and is checked with every record: the position is not behind the oldest row, and never goes back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import DamagedError, StateError
from holdfast.state.eventual.records import JoinWindow, Kind, Note, Part
from holdfast.state.eventual.scan import Found

PLACES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Between two steps: how many rows a stream had brought, and its source's snapshot."""

    rows: int
    source: Any


@dataclass
class JoinWindowPlaces:
    """Where the rows of one window begin. Of many steps only some are remembered: then a replay begins a little earlier."""

    size: int
    told: Place | None = None
    """As the newest record has it; None: the window was not opened yet."""
    _places: deque[Place] = field(default_factory=deque)
    """Oldest first. The rows of the window are all behind the first, and not all behind the second."""

    def resume(self, told: Place) -> None:
        self.told = told
        self._places = deque([told])

    def passed(self, before: Place, rows: int) -> None:
        """A step begins at a place, and the stream has brought so many rows behind it."""
        if rows > before.rows:
            self._places.append(before)
        while len(self._places) > 1 and self._places[1].rows <= rows - self.size:
            self._places.popleft()
        if len(self._places) > PLACES_MAX:
            self._places = deque(place for number, place in enumerate(self._places) if number % 2 == 0)

    def tell(self, side: int, rows: int) -> JoinWindow:
        """The record to be written behind a step after which the stream has brought so many rows."""
        begin = self._places[0]
        if begin.rows > max(rows - self.size, 0):
            raise _broken(f"rows of the window before row {begin.rows} would be missing")
        if self.told is not None and begin.rows < self.told.rows:
            raise _broken(f"the window began at row {self.told.rows}, and would begin at row {begin.rows}")
        kind = Kind.OPENED if self.told is None else Kind.CHECKED
        self.told = begin
        return JoinWindow(side, kind, begin.rows, begin.source)


@dataclass(frozen=True, slots=True)
class FoundJoin:
    """What a scan found. By side: the newest record of its window, the number of the note that has it and the time there."""

    newest: Note
    windows: dict[int, tuple[JoinWindow, int, int]]
    notes: tuple[Found, ...]
    """Those that were read, oldest first."""
    bytes: int


@dataclass
class JoinScan:
    """Fed with parts of notes, newest first, until it is done."""

    newest: Note | None = None
    bytes: int = 0
    _fed: int = 0
    _found: dict[int, tuple[JoinWindow, int, int]] = field(default_factory=dict)
    _notes: list[Found] = field(default_factory=list)

    def feed(self, part: Part) -> bool:
        """True: a record of each open window is found."""
        self.bytes += part.bytes
        self._fed += 1
        if (note := part.note) is None:
            return False
        self.newest = self.newest or note
        self._notes.append(Found(note.number, self._fed - 1, note.before.source))
        for each in note.windows:
            self._found.setdefault(each.side, (each, note.number, note.now_us))
        return len(self._found) >= self.newest.n_open

    def result(self) -> FoundJoin | None:
        """None: there is no note. DamagedError: fewer windows than there should be, or more."""
        if self.newest is None:
            return None
        if len(self._found) != self.newest.n_open:
            raise DamagedError(
                f"the log tells of {self.newest.n_open} open windows, and {len(self._found)} are found in it.",
                cure="Restore the log from a backup, or begin another one. Nothing was changed.",
            )
        return FoundJoin(self.newest, self._found, tuple(self._notes[::-1]), self.bytes)


def _broken(what: str) -> StateError:
    return StateError(
        f"the records of windows contradict each other: {what}.",
        cure="Nothing was written. Report it, with the log; a new log begins from the first row.",
    )
