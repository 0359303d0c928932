"""Variables that an operator declares in its class: `Value`, `Map`, `List`, `Window`.

    class Visits(KeyedOperator):
        count = Value(int, default=0)
        pages = Map(str, int, ttl=3600)

In a keyed operator each key has its own; in an operator hosted in the driver each instance has. Read and written as
attributes (`self.count += 1`, `self.pages["/"] = 1`). Types are exact, as in the codec: what was stored comes back.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from holdfast.errors import TopologyError
from holdfast.state.values import codec, plain_types, user_classes
from holdfast.state.variables.declarations import Length, Variable, VariableShape
from holdfast.state.variables.working_values import Cell, Clock, ListState, MapState, WindowState

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

Seconds = float | int | timedelta

_BUILTIN = frozenset({bool, int, float, str, bytes, list, tuple, dict, set, frozenset, object})
_COLLECTIONS = frozenset({deque, Counter, OrderedDict, defaultdict})
_DECLARE = (
    "Use a type whose values are data (int, str, float, datetime, list, …), a registered class, or object."
)


class Value(Variable, Generic[T]):
    """One value: `count = hf.Value(int, default=0)`. With `ttl` (seconds of event time) it goes back to the default."""

    @overload
    def __init__(
        self: Value[T | None],
        kind: type[T],
        *,
        default: None = ...,
        ttl: Seconds | None = ...,
        element_size: int | None = ...,
        length: Length | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        kind: type[T],
        *,
        default: T,
        ttl: Seconds | None = ...,
        element_size: int | None = ...,
        length: Length | None = ...,
    ) -> None: ...
    def __init__(
        self,
        kind: Any,
        *,
        default: Any = None,
        ttl: Seconds | None = None,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        super().__init__(1, element_size, length)
        self.kind = _kind(kind)
        self.ttl_us = _micros(ttl, "ttl")
        if default is not None and self.kind is not object and type(default) is not self.kind:
            raise TopologyError(
                f"the default {default!r} of a Value is of type {type(default).__name__}, not {self.kind.__name__}.",
                cure="Give a default of the declared type.",
            )
        self.default = default
        self._encoded = codec.encode(default, path="the default of a Value")

    @overload
    def __get__(self, instance: None, owner: type) -> Value[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self._of(instance).get()

    def __set__(self, instance: object, value: T) -> None:
        self._of(instance).set(value)

    def fresh_default(self) -> Any:
        """The default; one that can be changed in place is made anew, so that keys do not share it."""
        return self.default if type(self.default) in _IMMUTABLE else codec.decode(self._encoded)

    def check(self, value: Any) -> None:
        if value is None and self.default is None:
            return
        if type(value) is not self.kind and self.kind is not object:
            raise self._refuse(value, self.kind)

    @property
    def needs_time(self) -> bool:
        return self.ttl_us is not None

    @property
    def kinds(self) -> tuple[type, ...]:
        return (self.kind,)

    def live(self, payload: Any, clock: Clock) -> Cell:
        return Cell(self, payload, clock)

    @property
    def shape(self) -> VariableShape:
        return VariableShape("value", (self.kind.__name__,), ttl_us=self.ttl_us)


class Map(Variable, Generic[K, V]):
    """A dict: `seen = hf.Map(str, int, ttl=3600)`. With `ttl` (seconds of event time) entries end by themselves."""

    def __init__(
        self,
        key: type[K],
        value: type[V],
        *,
        ttl: Seconds | None = None,
        sample: int = 3,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        super().__init__(sample, element_size, length)
        self.key = _kind(key)
        self.value = _kind(value)
        self.ttl_us = _micros(ttl, "ttl")

    @overload
    def __get__(self, instance: None, owner: type) -> Map[K, V]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> MutableMapping[K, V]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self._of(instance)

    def __set__(self, instance: object, value: Mapping[K, V]) -> None:
        self._of(instance).set(value)

    def check_entry(self, key: Any, value: Any) -> None:
        if type(key) is not self.key and self.key is not object:
            raise self._refuse(key, self.key, " keys")
        if type(value) is not self.value and self.value is not object:
            raise self._refuse(value, self.value, " values")

    @property
    def needs_time(self) -> bool:
        return self.ttl_us is not None

    @property
    def kinds(self) -> tuple[type, ...]:
        return (self.key, self.value)

    def live(self, payload: Any, clock: Clock) -> MapState:
        return MapState(self, payload, clock)

    @property
    def shape(self) -> VariableShape:
        return VariableShape("map", (self.key.__name__, self.value.__name__), ttl_us=self.ttl_us)


class _Elements(Variable, Generic[T]):
    """Many values of one type."""

    def __init__(self, kind: type[T], sample: int, element_size: int | None, length: Length | None) -> None:
        super().__init__(sample, element_size, length)
        self.kind = _kind(kind)

    def __set__(self, instance: object, value: Iterable[T]) -> None:
        self._of(instance).set(value)

    def check(self, value: Any) -> None:
        if type(value) is not self.kind and self.kind is not object:
            raise self._refuse(value, self.kind, " elements")

    @property
    def kinds(self) -> tuple[type, ...]:
        return (self.kind,)


class List(_Elements[T]):
    """A list: `recent = hf.List(float, sample=8)`."""

    def __init__(
        self,
        kind: type[T],
        *,
        sample: int = 3,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        super().__init__(kind, sample, element_size, length)

    @overload
    def __get__(self, instance: None, owner: type) -> List[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> MutableSequence[T]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self._of(instance)

    @property
    def needs_time(self) -> bool:
        return False

    def live(self, payload: Any, clock: Clock) -> ListState:
        return ListState(self, payload, clock)

    @property
    def shape(self) -> VariableShape:
        return VariableShape("list", (self.kind.__name__,))


class Window(_Elements[T]):
    """The last `rows` elements, or those of the last `seconds` of event time: `window = hf.Window(float, rows=100)`."""

    def __init__(
        self,
        kind: type[T],
        *,
        rows: int | None = None,
        seconds: Seconds | None = None,
        sample: int = 3,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        super().__init__(kind, sample, element_size, length)
        if (rows is None) == (seconds is None):
            raise TopologyError(
                "a Window has either rows= or seconds=.", cure="Write hf.Window(float, rows=100)."
            )
        if rows is not None and (type(rows) is not int or rows < 1):
            raise TopologyError(f"rows={rows!r} is no number of elements.", cure="Give 1 or more.")
        self.rows = rows
        self.seconds_us = _micros(seconds, "seconds")

    @overload
    def __get__(self, instance: None, owner: type) -> Window[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> WindowState[T]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self._of(instance)

    @property
    def needs_time(self) -> bool:
        return self.seconds_us is not None

    def live(self, payload: Any, clock: Clock) -> WindowState[T]:
        return WindowState(self, payload, clock)

    @property
    def shape(self) -> VariableShape:
        return VariableShape("window", (self.kind.__name__,), rows=self.rows, us=self.seconds_us)


_IMMUTABLE = frozenset({bool, int, float, str, bytes, type(None)})


def _kind(kind: Any) -> type:
    if kind is Any:
        return object
    if not isinstance(kind, type) or not (
        kind in _BUILTIN or kind in _COLLECTIONS or user_classes.is_registered(kind) or plain_types.find(kind)
    ):
        raise TopologyError(f"{kind!r} cannot be the type of a variable.", cure=_DECLARE)
    return kind


def _micros(length: Any, what: str) -> int | None:
    if length is None:
        return None
    given = length.total_seconds() if isinstance(length, timedelta) else length
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1e-6 <= given < 1e11:
        raise TopologyError(
            f"{what}={length!r} is no duration.", cure="Give seconds or a datetime.timedelta, above zero."
        )
    return round(given * 1_000_000)
