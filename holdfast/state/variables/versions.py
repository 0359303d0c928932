"""A declared variable as a row of stored versions: a *base*, which is the whole of it, and *deltas* behind it.

`Versions` gives a variable's next version and follows it from then on; `merged` puts versions together again. It is
exact: the merged value is what the variable held when the newest version was taken, the order of a map included.

    map       base: a dict          delta: [[key taken out], {key: value}]; what is new stands at the end
    list      base: a list          delta: [[old place or -1, length, …], [old place], [value at it], [new element]]
    window    base: a list          delta: the same
    value     base: [] or [value]   delta: none; it is stored again when it changed

The four (two) parts of a delta are encoded one by one, then together. Values that can be changed in place (`is_fixed`) are
compared by the hash of their encoded form, so following them costs as much as encoding them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any
from uuid import UUID

from holdfast.errors import StateError
from holdfast.state.values import codec
from holdfast.state.variables import change_tracking
from holdfast.state.variables.change_tracking import NEW, MapLog, Pieces, WindowLog, is_fixed, is_found_again
from holdfast.state.variables.declarations import Variable
from holdfast.state.variables.variables import Value
from holdfast.state.variables.working_values import UNSET, Cell, ListState, Live, MapState, WindowState

_SURE_KEYS = frozenset({bool, int, str, bytes, UUID})
"""Key types of which every stored copy equals the key."""


def is_incremental(variable: Variable) -> bool:
    """Whether a variable is stored in versions. A small value is not worth it; event time would change it unseen."""
    if variable.needs_time:
        return False
    return not (isinstance(variable, Value) and variable.kind in change_tracking.SMALL)


def versions_of(variable: Variable, live: Live) -> Versions:
    """For a variable that `is_incremental`."""
    path = f"attribute {variable.name!r}"
    if isinstance(live, Cell):
        return ValueVersions(live, path)
    if isinstance(live, MapState):
        return MapVersions(live, path)
    return SequenceVersions(live, path)


class Versions(ABC):
    """One variable's versions. Whoever takes one, by `base` or `delta`, calls `follow` or `forget` before the next step."""

    @abstractmethod
    def base(self) -> bytes:
        """The whole variable."""

    def frozen(self) -> Callable[[], bytes] | None:
        """`base`, encoded later by any thread, while the variable goes on: a short copy is made now. None if its values
        could change in place meanwhile."""
        return None

    @abstractmethod
    def delta(self) -> bytes | None:
        """What changed since `follow`: empty bytes for nothing, None if only a base will do."""

    @abstractmethod
    def follow(self) -> None:
        """From now on changes count from here."""

    @abstractmethod
    def forget(self) -> None:
        """Follow no more; the next version is a base."""


class ValueVersions(Versions):
    """Of a single value: it has changed or not."""

    def __init__(self, cell: Cell, path: str) -> None:
        self._cell = cell
        self._path = path
        self._old: Any = UNSET
        """The value that is followed, if it is fixed."""
        self._hash: bytes | None = None
        """Else its hash."""

    def base(self) -> bytes:
        held = self._cell.held()
        return codec.encode([] if held is UNSET else [held], path=self._path)

    def delta(self) -> bytes | None:
        value = self._cell.get()
        same = value is self._old or (
            self._hash is not None and self._hash == _hash_of(codec.encode(value, path=self._path))
        )
        return b"" if same else None

    def follow(self) -> None:
        value = self._cell.get()
        self.forget()
        if is_fixed(value):
            self._old = value
        else:
            self._hash = _hash_of(codec.encode(value, path=self._path))

    def forget(self) -> None:
        self._old, self._hash = UNSET, None


class MapVersions(Versions):
    """Of a map."""

    def __init__(self, live: MapState, path: str) -> None:
        self._live = live
        self._path = path
        self._sure_keys = live._variable.key in _SURE_KEYS
        self._sure_values = change_tracking.is_fixed_kind(live._variable.value)
        self._hashes: dict[Any, bytes] = {}
        """Of the values that can be changed in place."""
        self._next: dict[Any, bytes] | None = None
        """The same of the version just taken, as far as `delta` found them."""

    def base(self) -> bytes:
        self._next = None
        return codec.encode(self._live._data, path=self._path)

    def frozen(self) -> Callable[[], bytes] | None:
        if not (self._sure_keys and self._sure_values):
            return None
        self._next, copy, path = None, self._live._data.copy(), self._path
        return lambda: codec.encode(copy, path=path)

    def delta(self) -> bytes | None:
        log: MapLog | None = change_tracking.log_of(self._live)
        if log is None:
            return None
        removed, written = list(log.removed), list(log.changed)
        if not self._sure_keys and not all(map(is_found_again, (*removed, *written))):
            return None
        written += self._compared(log)
        if not removed and not written:
            return b""
        data = self._live._data
        if len(removed) + len(written) >= len(data):
            return None
        changed = codec.encode({key: data[key] for key in written}, path=self._path)
        return codec.encode([codec.encode(removed), changed])

    def _compared(self, log: MapLog) -> list[Any]:
        """Keys whose values were changed in place."""
        data = self._live._data
        now = {
            key: _hash(data[key], self._path, key)
            for key in (*self._hashes, *(key for key in log.changed if key not in self._hashes))
            if key in data and not is_fixed(data[key])
        }
        self._next = now
        return [
            key for key, old in self._hashes.items() if key not in log.changed and now.get(key, old) != old
        ]

    def follow(self) -> None:
        data = self._live._data
        self._hashes = {} if self._next is None else self._next
        if self._next is None and not self._sure_keys and not all(map(is_found_again, data)):
            self.forget()
            return
        if self._next is None and not self._sure_values:
            self._hashes = {
                key: _hash(value, self._path, key) for key, value in data.items() if not is_fixed(value)
            }
        self._next = None
        change_tracking.enable(self._live)

    def forget(self) -> None:
        change_tracking.disable(self._live)
        self._hashes, self._next = {}, None


class SequenceVersions(Versions):
    """Of a list or a window."""

    def __init__(self, live: ListState | WindowState[Any], path: str) -> None:
        self._live = live
        self._path = path
        self._sure = change_tracking.is_fixed_kind(live._variable.kind)
        self._length = 0
        """Of the version that is followed."""
        self._hashes: dict[int, bytes] = {}
        """By place in that version, of the elements that can be changed in place."""

    def base(self) -> bytes:
        data = self._live._data
        return codec.encode(data if isinstance(data, list) else list(data), path=self._path)

    def frozen(self) -> Callable[[], bytes] | None:
        if not self._sure:
            return None
        copy, path = list(self._live._data), self._path
        return lambda: codec.encode(copy, path=path)

    def delta(self) -> bytes | None:
        log = change_tracking.log_of(self._live)
        if log is None:
            return None
        data = self._live._data
        pieces = self._pieces(log)
        replaced = self._replaced(pieces, set() if isinstance(log, WindowLog) else log.replaced)
        kept = sum(length for start, length in pieces if start != NEW)
        new = len(data) - kept
        if not new and not replaced and kept == self._length:
            return b""
        if new + len(replaced) >= len(data):
            return None
        numbers = [number for piece in pieces for number in piece]
        parts = (numbers, list(replaced), list(replaced.values()), self._new(pieces, new))
        return codec.encode([codec.encode(part, path=self._path) for part in parts])

    def _pieces(self, log: Pieces | WindowLog) -> list[tuple[int, int]]:
        if isinstance(log, Pieces):
            return list(log)
        kept = len(self._live._data) - log.appended
        return [(log.length - kept, kept)] if kept > 0 else []

    def _replaced(self, pieces: list[tuple[int, int]], noted: set[int]) -> dict[int, Any]:
        """Elements that stand where an old one stood and differ from it, by its old place."""
        doubtful = sorted(noted.union(self._hashes))
        if not doubtful:
            return {}
        data: Sequence[Any] = self._live._data
        data = data if isinstance(data, list) else list(data)
        found = {}
        place = 0
        for start, length in pieces:
            ends = [] if start == NEW else [bisect_left(doubtful, end) for end in (start, start + length)]
            for old in doubtful[slice(*ends)] if ends else ():
                value = data[place + old - start]
                if old in noted or _hash(value, self._path, old) != self._hashes[old]:
                    found[old] = value
            place += length
        return found

    def _new(self, pieces: list[tuple[int, int]], count: int) -> list[Any]:
        data = self._live._data
        if not isinstance(data, list):
            return list(islice(reversed(data), count))[::-1]
        found: list[Any] = []
        place = 0
        for start, length in pieces:
            found += data[place : place + length] if start == NEW else ()
            place += length
        return found + data[place:]

    def follow(self) -> None:
        data = self._live._data
        self._length = len(data)
        doubtful = () if self._sure else enumerate(data)
        self._hashes = {
            place: _hash(each, self._path, place) for place, each in doubtful if not is_fixed(each)
        }
        change_tracking.enable(self._live)

    def forget(self) -> None:
        change_tracking.disable(self._live)
        self._hashes = {}


def _hash(value: Any, path: str, place: Any) -> bytes:
    """Of the value at `place` in a map or a list."""
    try:
        encoded = codec.encode(value)
    except StateError:
        encoded = codec.encode({place: value}, path=path)  # raises again, and names the place
    return _hash_of(encoded)


def _hash_of(encoded: bytes) -> bytes:
    return blake2b(encoded, digest_size=16).digest()


# --- putting together -----------------------------------------------------------------------------------------------


def merged(described: str, versions: Iterable[bytes]) -> Any:
    """The payload of stored versions, the base first; `UNSET`: as declared. `described`: how the variable was then."""
    walk = iter(versions)
    payload = codec.decode(next(walk))
    if described.startswith("value("):
        return payload[0] if payload else UNSET
    apply: Callable[..., Any] = _map_with if described.startswith("map(") else _list_with
    for delta in walk:
        payload = apply(payload, *(codec.decode(part) for part in codec.decode(delta)))
    return payload or UNSET


def _map_with(old: dict[Any, Any], removed: list[Any], changed: dict[Any, Any]) -> dict[Any, Any]:
    for key in removed:
        old.pop(key, None)
    old.update(changed)
    return old


def _list_with(
    old: list[Any], pieces: list[int], places: list[int], values: list[Any], new: list[Any]
) -> list[Any]:
    for place, value in zip(places, values, strict=True):
        old[place] = value
    result: list[Any] = []
    arrived = iter(new)
    for start, length in zip(pieces[::2], pieces[1::2], strict=True):
        result += islice(arrived, length) if start == NEW else old[start : start + length]
    return result + list(arrived)
