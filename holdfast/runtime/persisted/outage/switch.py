"""When rows of a stream go by memory, and when by the log. Pure: no clock, no files, no threads.

    memory ──(more is held than may be)──▶ log: all that is held goes there first, in order
    log    ──(who reads has read all of it)──▶ memory

Rows are held until they are released: who reads may go back to its newest snapshot at any time. An outage shows in rows that nobody
releases; so does a reader that is much too slow, and both are treated alike.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from holdfast.errors import StateError
from holdfast.runtime.persisted.outage.resuming import Mark, Place, Resumed, Seats

T = TypeVar("T")


class Mode(Enum):
    """Where the next rows go."""

    MEMORY = "memory"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """Rows [first, behind) of those that went by memory since the log ended where it does."""

    first: int
    behind: int
    bytes: int
    rows: T
    sources: Seats


@dataclass(frozen=True, slots=True)
class ToLog(Generic[T]):
    """What must be appended at once, before the new rows and together with them."""

    held: tuple[T, ...]
    mark: Mark | None


class Switch(Generic[T]):
    """Of one stream in one run. Used under a lock of its owner."""

    def __init__(self, run: int, begun: Resumed, end: int, bytes_max: int) -> None:
        self.run = run
        self.end = end
        """Of the log."""
        self.begun = begun
        self.sources: Seats | None = begun.sources
        """Where the sources are behind the last row that came."""
        self.held: deque[Held[T]] = deque()
        self.times_on = 0
        """How often rows that were held went to the log."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._base = 0
        """Rows before it were released."""
        self._base_sources = begun.sources
        self._count = 0
        self._is_marked = begun.continues
        self._stored: dict[int, int] = {}
        """Where the log ended when held rows went there, and the first of these."""
        behind = begun.at if begun.skip is None else begun.skip[1]
        is_behind = begun.at < end and (begun.skip is None or begun.at < begun.skip[0] or behind < end)
        self.mode = Mode.LOG if is_behind else Mode.MEMORY
        self.shift = max(0, begun.number - begun.at)
        """Rows of the log have their position plus this as their number, which only grows."""

    # --- rows that come ---

    def fits(self, bytes: int) -> bool:
        """Whether rows of that size may go by memory."""
        return self.mode is Mode.MEMORY and (not self.held or self._bytes + bytes <= self._bytes_max)

    def hold(self, rows: T, count: int, bytes: int, sources: Seats) -> None:
        self.held.append(Held(self._count, self._count + count, bytes, rows, sources))
        self._count += count
        self._bytes += bytes
        self.sources = sources

    def touch(self, sources: Seats) -> None:
        """The sources went on, and no row came of it."""
        self.sources = sources
        if self.mode is Mode.LOG:
            return
        if self.held:
            self.held[-1] = replace(self.held[-1], sources=sources)
        else:
            self._base_sources = sources

    def to_log(self) -> ToLog[T]:
        """Before rows are appended. `logged` follows when they are durable; if they are not, nothing has changed."""
        first = self.held[0].first if self.held else self._count
        is_gap = not self._is_marked or (self.mode is Mode.MEMORY and first > 0)
        return ToLog(
            tuple(each.rows for each in self.held),
            Mark(self.end, self.run, first, is_gap) if is_gap or self.mode is Mode.MEMORY else None,
        )

    def logged(self, count: int, sources: Seats) -> None:
        """All that was held, and `count` rows behind it, are in the log."""
        if self.mode is Mode.MEMORY:
            first = self.held[0].first if self.held else self._count
            self._stored[self.end] = first
            self.shift += first
            self.end += self._count - first
            self.times_on += 1
        self.held.clear()
        self._bytes = 0
        self.end += count
        self.mode, self._is_marked, self.sources = Mode.LOG, True, sources

    # --- who reads ---

    def caught_up(self, place: Place) -> Place:
        """It is to go on at `place`, or at the one returned: behind the last row of the log, rows need not go there any more."""
        at = self.physical(place)
        if self.mode is Mode.MEMORY or at is None or at < self.end:
            return place
        self.mode = Mode.MEMORY
        self._base = self._count = 0
        self._base_sources = self.sources
        return Place(self.end)

    def ahead(self, place: Place, rows_max: int) -> tuple[Held[T], ...]:
        """What is held from `place` on, whole, about so many rows."""
        taken: list[Held[T]] = []
        for each in self.held if place.log == self.end and self.mode is Mode.MEMORY else ():
            if each.first >= place.passed and (not taken or each.behind - taken[0].first <= rows_max):
                taken.append(each)
            elif taken:
                break
        return tuple(taken)

    def between(self, start: Place, end: Place) -> tuple[Held[T], ...] | None:
        """What is held from one place to the other. None: it is in the log now, see `physical`."""
        if self.physical(start) is not None:
            return None
        return tuple(each for each in self.held if start.passed <= each.first and each.behind <= end.passed)

    def physical(self, place: Place) -> int | None:
        """The position in the log at which a place of this run is; None: what comes next is held, or is to come.
        StateError: rows behind it were released."""
        base = self._stored.get(place.log)
        is_held = base is None and place.log == self.end and self.mode is Mode.MEMORY
        first = self._base if is_held else base or 0
        if place.passed < first:
            raise StateError(
                "rows that went by memory were let go, and a snapshot from before them is asked for.",
                cure="Start the run again: they are made anew.",
            )
        return None if is_held else place.log + place.passed - first

    def number(self, place: Place) -> int:
        """Of the next row. Numbers only grow."""
        at = self.physical(place)
        return self.shift + (place.log + place.passed if at is None else at)

    def sources_behind(self, place: Place) -> Seats | None:
        """Where the sources were behind `place`; None: it is in the log, before rows that are there."""
        at = self.physical(place)
        if at is not None:
            return self.sources if at == self.end else None
        found = [each.sources for each in self.held if each.behind == place.passed]
        return found[-1] if found else self._base_sources if place.passed == self._base else None

    def release(self, place: Place) -> None:
        """Who reads goes back to `place` at most."""
        if self.mode is Mode.LOG or place.log != self.end:
            return
        while self.held and self.held[0].behind <= place.passed:
            gone = self.held.popleft()
            self._bytes -= gone.bytes
            self._base, self._base_sources = gone.behind, gone.sources

    @property
    def rows_held(self) -> int:
        return self.held[-1].behind - self.held[0].first if self.held else 0

    @property
    def bytes_held(self) -> int:
        return self._bytes
