"""Following the changes of declared variables, so that a checkpoint can store just those.

While a variable is followed its object has another class, whose changing methods also log; the object stays the same,
so whoever holds it is followed too. A variable that is not followed executes the code of working_values.py and nothing else.

A log says what to look at, not what was there: the values are read when the checkpoint is taken. It never grows beyond
the variable: where it would, or where everything was replaced, following ends by itself and the log is None, which
means that the whole variable has to be stored.

What no log can see is a value that is changed in place (a list inside a map). versions.py finds those by comparing.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from holdfast.state.variables.working_values import ListState, MapState, WindowState


class MapLog:
    """Changes of a map."""

    __slots__ = ("changed", "removed")

    def __init__(self) -> None:
        self.changed: dict[Any, bool] = {}
        """Keys that were written; True: there was no such key before. New keys stand in the order of the map."""
        self.removed: dict[Any, None] = {}
        """Keys of the old version that were taken out; they may have come back, then at the end."""


class TrackedMap(MapState):
    """A map that is followed."""

    __slots__ = ()
    _log: MapLog | None

    def __setitem__(self, key: Any, value: Any) -> None:
        log = self._log
        assert log is not None
        is_new = key not in self._data
        MapState.__setitem__(self, key, value)
        log.changed.setdefault(key, is_new)

    def __delitem__(self, key: Any) -> None:
        log = self._log
        assert log is not None
        MapState.__delitem__(self, key)
        if not log.changed.pop(key, False):
            log.removed[key] = None
            if len(log.removed) > len(self._data):
                disable(self)

    def clear(self) -> None:
        MapState.clear(self)
        disable(self)


class TrackedList(ListState):
    """A list that is followed. What is appended needs no log: it lies behind all old elements."""

    __slots__ = ()
    _log: Pieces | None

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = list(value)  # may itself change the list
        before = len(self._data)
        ListState.__setitem__(self, index, value)
        assert self._log is not None
        if not isinstance(index, slice):
            self._log.replace(range(before)[index])
            return
        places = range(before)[index]
        if places.step == 1:
            end = max(places.start, places.stop)
            self._note(places.start, end, len(self._data) - before + end - places.start)
        else:
            for place in places:
                self._log.replace(place)

    def __delitem__(self, index: int | slice) -> None:
        before = len(self._data)
        ListState.__delitem__(self, index)
        if not isinstance(index, slice):
            place = range(before)[index]
            self._note(place, place + 1, 0)
            return
        places = range(before)[index]
        if places.step == 1:
            self._note(places.start, max(places.start, places.stop), 0)
        else:
            for place in sorted(places, reverse=True):
                self._note(place, place + 1, 0)

    def insert(self, index: int, value: Any) -> None:
        before = len(self._data)
        ListState.insert(self, index, value)
        place = max(0, before + index) if index < 0 else min(index, before)
        self._note(place, place, 1)

    def _note(self, begin: int, end: int, count: int) -> None:
        log = self._log
        if log is None:  # given up in the middle of a change
            return
        log.splice(begin, end, count)
        if log.scattered:
            disable(self)


class WindowLog:
    """Changes of a window: it only loses at one end and grows at the other."""

    __slots__ = ("appended", "length")

    def __init__(self, length: int) -> None:
        self.appended = 0
        self.length = length
        """Of the old version."""


class TrackedWindow(WindowState[Any]):
    """A window that is followed."""

    __slots__ = ()
    _log: WindowLog | None

    def append(self, value: Any) -> None:
        WindowState.append(self, value)
        assert self._log is not None
        self._log.appended += 1

    def clear(self) -> None:
        WindowState.clear(self)
        disable(self)


_FOLLOWED: dict[type, type] = {MapState: TrackedMap, ListState: TrackedList, WindowState: TrackedWindow}
_PLAIN = {followed: plain for plain, followed in _FOLLOWED.items()}


def enable(live: Any) -> None:
    """Log the changes of a map, list or window from now on, beginning with an empty log."""
    plain = _PLAIN.get(type(live), type(live))
    if plain is MapState:
        live._log = MapLog()
    else:
        live._log = Pieces(len(live._data)) if plain is ListState else WindowLog(len(live._data))
    live.__class__ = _FOLLOWED[plain]


def disable(live: Any) -> None:
    """Log nothing any more."""
    if type(live) in _PLAIN:
        live._log = None
        live.__class__ = _PLAIN[type(live)]


def log_of(live: Any) -> Any:
    """The changes since `enable`; None: it was not followed all the time."""
    return live._log if type(live) in _PLAIN else None


PIECES_MAX = 1024
"""Every change walks over the pieces; with more of them the whole list is the cheaper thing to store."""

NEW = -1
"""In place of the old place: these elements are new."""


class Pieces:
    """Which elements of a list are still those of an earlier version of it, and where they stand now.

    The list is described from its beginning as a row of pieces: elements of the old version, taken over from a place
    on, or new ones. What lies behind the last piece is new, so appending changes nothing here. An element that was
    replaced where it stood is remembered by its old place instead of cutting a piece in two. `scattered`: there were too many changes to follow, nothing is known any more."""

    __slots__ = ("_pieces", "covered", "replaced", "scattered")

    def __init__(self, length: int) -> None:
        self._pieces: list[tuple[int, int]] = [(0, length)] if length else []
        self.covered = length
        """Elements the pieces describe; those behind are new."""
        self.replaced: set[int] = set()
        """Old places whose elements were replaced. Some of them may be gone meanwhile."""
        self.scattered = False

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(old place or NEW, length) from the beginning of the list."""
        return iter(self._pieces)

    def replace(self, index: int) -> None:
        """The element at `index` was replaced."""
        if index >= self.covered:
            return
        for start, length in self._pieces:
            if index < length:
                if start != NEW:
                    self.replaced.add(start + index)
                return
            index -= length

    def splice(self, begin: int, end: int, count: int) -> None:
        """`count` new elements took the place of those from `begin` to `end`."""
        if begin >= self.covered:
            return
        if end >= self.covered:
            self._pieces = self._upto(begin)
        else:
            fresh = [(NEW, count)] if count else []
            self._pieces = _joined([*self._upto(begin), *fresh, *self._from(end)])
        self.covered = sum(length for _, length in self._pieces)
        self.scattered = len(self._pieces) > PIECES_MAX

    def _upto(self, end: int) -> list[tuple[int, int]]:
        found = []
        for start, length in self._pieces:
            if end <= 0:
                break
            found.append((start, min(length, end)))
            end -= length
        return found

    def _from(self, begin: int) -> list[tuple[int, int]]:
        found = []
        for start, length in self._pieces:
            cut = min(max(begin, 0), length)
            if cut < length:
                found.append((start if start == NEW else start + cut, length - cut))
            begin -= length
        return found


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same with neighbours made one where they go on with each other."""
    joined: list[tuple[int, int]] = []
    for start, length in pieces:
        before, size = joined[-1] if joined else (0, 0)
        if joined and (start == before == NEW or (before != NEW and start == before + size)):
            joined[-1] = (before, size + length)
        else:
            joined.append((start, length))
    return joined


SMALL = frozenset(
    {
        *(type(None), bool, int, float, complex, range, Decimal, Fraction, UUID),
        *(dt.datetime, dt.date, dt.time, dt.timedelta, dt.timezone, ZoneInfo),
    }
)
"""Fixed types whose values take a few bytes."""

_FIXED = SMALL | {str, bytes, np.str_, np.bytes_}
_HOLDERS = frozenset({tuple, frozenset})


def is_fixed_kind(kind: type) -> bool:
    """Whether all values of exactly this type are fixed."""
    if kind in _FIXED or issubclass(kind, enum.Enum):
        return True
    return issubclass(kind, np.generic) and not issubclass(kind, np.void | np.object_)


def is_fixed(value: Any) -> bool:
    """Whether this value is fixed; a tuple is if its elements are."""
    kind = type(value)
    return kind in _FIXED or (all(map(is_fixed, value)) if kind in _HOLDERS else is_fixed_kind(kind))


def is_found_again(key: Any) -> bool:
    """Whether a stored copy of this key equals the key: it is fixed, and there is no NaN in it."""
    if type(key) in _HOLDERS:
        return all(map(is_found_again, key))
    return is_fixed(key) and bool(key == key)
