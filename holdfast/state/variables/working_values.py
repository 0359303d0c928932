"""What a declared variable is while an operator works with it: checked at every change, stored as a plain *payload*.

A payload is data for the codec. `UNSET` in its place means: as declared, nothing to store.
With a lifetime, every entry remembers the event time of the row that wrote it. It can be seen until the event at work
has reached that time plus the lifetime, by its own event time or by the watermark at its position. It is removed when
the watermark has: a watermark never falls, so nobody could have seen it again, and results do not depend on when that
happened.

`_log` is set only while changes are followed (change_tracking.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.state.values import codec
from holdfast.state.windows.watermarks import NEVER

if TYPE_CHECKING:
    from holdfast.state.variables.variables import List, Map, Value, Window

T = TypeVar("T")

UNSET: Any = object()

_COMPARED = frozenset({int, str, bool, bytes, type(None)})


@dataclass(slots=True)
class Clock:
    """The time of the event at work, in microseconds: its own, and the watermark at its position."""

    time: int = NEVER
    mark: int = NEVER

    @property
    def now(self) -> int:
        return self.time if self.time > self.mark else self.mark


class Cell:
    """One value."""

    __slots__ = ("_clock", "_value", "_variable", "_written")

    def __init__(self, variable: Value[Any], payload: Any, clock: Clock) -> None:
        self._variable = variable
        self._clock = clock
        self._written = NEVER
        if payload is UNSET:
            self._value = variable.fresh_default()
        elif variable.ttl_us is None:
            self._value = payload
        else:
            self._written, self._value = payload

    def get(self) -> Any:
        lifetime = self._variable.ttl_us
        if lifetime is not None and self._written + lifetime <= self._clock.now:
            return self._variable.fresh_default()
        return self._value

    def set(self, value: Any) -> None:
        self._variable.check(value)
        self._value = value
        self._written = self._clock.time

    def payload(self, mark: int) -> Any:
        """What to store: without what has ended at the watermark `mark`."""
        lifetime = self._variable.ttl_us
        return UNSET if lifetime is not None and self._written + lifetime <= mark else self.held()

    def held(self) -> Any:
        """The same as it is held now, without looking for what has ended."""
        if _same(self._value, self._variable.default):
            return UNSET
        return self._value if self._variable.ttl_us is None else [self._written, self._value]

    def ends(self) -> int | None:
        """When the watermark has come here, nothing with a lifetime is left. None: nothing ends by itself."""
        return None if self._variable.ttl_us is None else self._written + self._variable.ttl_us


class MapState(MutableMapping[Any, Any]):
    """A dict per key. With a lifetime it is ordered by when entries were last written, and a loop goes through what there was
    when it began: writing an entry moves it. Without one a loop is that of a dict."""

    __slots__ = ("_clock", "_data", "_log", "_variable")

    def __init__(self, variable: Map[Any, Any], payload: Any, clock: Clock) -> None:
        self._variable = variable
        self._clock = clock
        self._data: dict[Any, Any] = {} if payload is UNSET else payload

    def __getitem__(self, key: Any) -> Any:
        entry = self._data[key]
        if self._variable.ttl_us is None:
            return entry
        if not self._alive(entry):
            raise KeyError(key)
        return entry[1]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._variable.check_entry(key, value)
        if self._variable.ttl_us is None:
            self._data[key] = value
            return
        # Taken out first: whether an entry that ended was still there must not show in the order.
        self._data.pop(key, None)
        self._data[key] = [self._clock.time, value]

    def __delitem__(self, key: Any) -> None:
        self[key]
        del self._data[key]

    def __iter__(self) -> Iterator[Any]:
        if self._variable.ttl_us is None:
            return iter(self._data)
        return iter([key for key, entry in self._data.items() if self._alive(entry)])

    def items(self) -> ItemsView[Any, Any]:
        return self._data.items() if self._variable.ttl_us is None else _LivingItems(self)

    def values(self) -> ValuesView[Any]:
        return self._data.values() if self._variable.ttl_us is None else _LivingValues(self)

    def living(self) -> dict[Any, Any]:
        """Of a map with a lifetime: the entries whose time is not over."""
        return {key: entry[1] for key, entry in self._data.items() if self._alive(entry)}

    def __len__(self) -> int:
        if self._variable.ttl_us is None:
            return len(self._data)
        return sum(1 for entry in self._data.values() if self._alive(entry))

    def __contains__(self, key: object) -> bool:
        if key not in self._data:
            return False
        return self._variable.ttl_us is None or self._alive(self._data[key])

    def clear(self) -> None:
        self._data.clear()

    def __repr__(self) -> str:
        return repr(dict(self))

    def set(self, values: Mapping[Any, Any]) -> None:
        """Replace everything."""
        chosen = dict(values)
        self.clear()
        self.update(chosen)

    def payload(self, mark: int) -> Any:
        lifetime = self._variable.ttl_us
        if lifetime is not None:
            self._data = {key: entry for key, entry in self._data.items() if entry[0] + lifetime > mark}
        return self.held()

    def held(self) -> Any:
        return self._data or UNSET

    def ends(self) -> int | None:
        lifetime = self._variable.ttl_us
        if lifetime is None or not self._data:
            return None
        return int(max(entry[0] for entry in self._data.values())) + lifetime

    def _alive(self, entry: Any) -> bool:
        assert self._variable.ttl_us is not None
        return bool(entry[0] + self._variable.ttl_us > self._clock.now)


class _LivingItems(ItemsView[Any, Any]):
    _mapping: MapState

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._mapping.living().items())


class _LivingValues(ValuesView[Any]):
    _mapping: MapState

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping.living().values())


class ListState(MutableSequence[Any]):
    """A list per key."""

    __slots__ = ("_data", "_log", "_variable")

    def __init__(self, variable: List[Any], payload: Any, clock: Clock) -> None:
        self._variable = variable
        self._data: list[Any] = [] if payload is UNSET else payload

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._data[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = list(value)
        for each in value if isinstance(index, slice) else (value,):
            self._variable.check(each)
        self._data[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._data[index]

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data)

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def insert(self, index: int, value: Any) -> None:
        self._variable.check(value)
        self._data.insert(index, value)

    def append(self, value: Any) -> None:
        self._variable.check(value)
        self._data.append(value)

    def __repr__(self) -> str:
        return repr(self._data)

    def set(self, values: Iterable[Any]) -> None:
        """Replace everything."""
        self[:] = values

    def payload(self, mark: int) -> Any:
        return self.held()

    def held(self) -> Any:
        return self._data or UNSET

    def ends(self) -> int | None:
        return None


class WindowState(Sequence[T]):
    """The last elements of a key: a number of them, or those of some seconds before the latest. In the order they came."""

    __slots__ = ("_clock", "_data", "_log", "_variable")

    def __init__(self, variable: Window[Any], payload: Any, clock: Clock) -> None:
        self._variable = variable
        self._clock = clock
        self._data: deque[Any] = deque(() if payload is UNSET else payload, maxlen=variable.rows)

    def append(self, value: T) -> None:
        self._variable.check(value)
        if self._variable.seconds_us is None:
            self._data.append(value)
            return
        time = self._clock.time
        self._data.append([time, value])
        self._evict(self._newest())

    def clear(self) -> None:
        self._data.clear()

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice) or self._variable.seconds_us is not None:
            return list(self)[index]
        return self._data[index]

    def __len__(self) -> int:
        return len(self._data) if self._variable.seconds_us is None else sum(1 for _ in self)

    def __iter__(self) -> Iterator[T]:
        length = self._variable.seconds_us
        if length is None:
            return iter(self._data)
        limit = max(self._newest(), self._clock.now) - length
        return iter([value for time, value in self._data if time > limit])

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def set(self, values: Iterable[T]) -> None:
        """Replace everything."""
        chosen = list(values)
        self.clear()
        for value in chosen:
            self.append(value)

    def payload(self, mark: int) -> Any:
        if self._variable.seconds_us is not None:
            self._evict(max(self._newest(), mark))
        return list(self._data) or UNSET

    def held(self) -> Any:
        return self._data or UNSET

    def ends(self) -> int | None:
        length = self._variable.seconds_us
        return None if length is None or not self._data else self._newest() + length

    def _newest(self) -> int:
        return max((time for time, _ in self._data), default=NEVER)

    def _evict(self, now: int) -> None:
        assert self._variable.seconds_us is not None
        limit = now - self._variable.seconds_us
        if any(time <= limit for time, _ in self._data):
            self._data = deque(each for each in self._data if each[0] > limit)


Live = Cell | MapState | ListState | WindowState[Any]


def _same(one: Any, other: Any) -> bool:
    """The same type and value; -0.0 is not 0.0."""
    if one is other or type(one) is not type(other):
        return one is other
    return bool(one == other) if type(one) in _COMPARED else codec.encode(one) == codec.encode(other)
