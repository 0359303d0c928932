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
from typing import Any, Generic, Self, TypeVar, overload

from holdfast.durations import Duration
from holdfast.durations import seconds as duration_s
from holdfast.errors import TopologyError
from holdfast.state.values import codec, plain_types, user_classes
from holdfast.state.variables.declarations import Length, Variable, VariableShape
from holdfast.state.variables.working_values import Cell, ListState, MapState, WindowState

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Given = TypeVar("Given", covariant=True)
Taken = TypeVar("Taken", contravariant=True)


_BUILTIN = frozenset({bool, int, float, str, bytes, list, tuple, dict, set, frozenset, object})
_COLLECTIONS = frozenset({deque, Counter, OrderedDict, defaultdict})
_DECLARE = (
    "Use a type whose values are data (int, str, float, datetime, list, …), a registered class, or object."
)


class _Declared(Variable, Generic[Given, Taken]):
    """An attribute that gives one type and takes another."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Given: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self._of(instance)

    def __set__(self, instance: object, value: Taken) -> None:
        self._of(instance).set(value)


class Value(_Declared[T, T]):
    """One value: `count = hf.Value(int, default=0)`. With `ttl` (seconds of event time) it goes back to the default."""

    at_work = Cell

    @overload
    def __init__(
        self: Value[T | None],
        kind: type[T],
        *,
        default: None = ...,
        ttl: Duration | None = ...,
        element_size: int | None = ...,
        length: Length | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        kind: type[T],
        *,
        default: T,
        ttl: Duration | None = ...,
        element_size: int | None = ...,
        length: Length | None = ...,
    ) -> None: ...
    def __init__(
        self,
        kind: Any,
        *,
        default: Any = None,
        ttl: Duration | None = None,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        self.kind, self.ttl_us = _kind(kind), _micros(ttl, "ttl")
        shape = VariableShape("value", (self.kind.__name__,), ttl_us=self.ttl_us)
        super().__init__(shape, (self.kind,), 1, element_size, length)
        if default is not None and self.kind is not object and type(default) is not self.kind:
            raise TopologyError(
                f"the default {default!r} of a Value is of type {type(default).__name__}, not {self.kind.__name__}.",
                cure="Give a default of the declared type.",
            )
        self.default = default
        self._encoded = codec.encode(default, path="the default of a Value")

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self._of(instance).get()

    def fresh_default(self) -> Any:
        """The default; one that can be changed in place is made anew, so that keys do not share it."""
        return self.default if type(self.default) in _IMMUTABLE else codec.decode(self._encoded)

    def check(self, value: Any) -> None:
        if value is None and self.default is None:
            return
        if type(value) is not self.kind and self.kind is not object:
            raise self._refuse(value, self.kind)


class Map(_Declared[MutableMapping[K, V], Mapping[K, V]]):
    """A dict: `seen = hf.Map(str, int, ttl=3600)`. With `ttl` (seconds of event time) entries end by themselves, and a loop may change the
    map that it goes through: it sees what there was. Without, `for key in list(self.seen)` does, as with any dict."""

    at_work = MapState

    def __init__(
        self,
        key: type[K],
        value: type[V],
        *,
        ttl: Duration | None = None,
        sample: int = 3,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        self.key, self.value, self.ttl_us = _kind(key), _kind(value), _micros(ttl, "ttl")
        shape = VariableShape("map", (self.key.__name__, self.value.__name__), ttl_us=self.ttl_us)
        super().__init__(shape, (self.key, self.value), sample, element_size, length)

    def check_entry(self, key: Any, value: Any) -> None:
        if type(key) is not self.key and self.key is not object:
            raise self._refuse(key, self.key, " keys")
        if type(value) is not self.value and self.value is not object:
            raise self._refuse(value, self.value, " values")


class _Elements(_Declared[Given, Iterable[T]], Generic[Given, T]):
    """Many values of one type."""

    kind: type

    def check(self, value: Any) -> None:
        if type(value) is not self.kind and self.kind is not object:
            raise self._refuse(value, self.kind, " elements")


class List(_Elements[MutableSequence[T], T]):
    """A list: `recent = hf.List(float, sample=8)`."""

    at_work = ListState

    def __init__(
        self, kind: type[T], *, sample: int = 3, element_size: int | None = None, length: Length | None = None
    ) -> None:
        self.kind = _kind(kind)
        shape = VariableShape("list", (self.kind.__name__,))
        super().__init__(shape, (self.kind,), sample, element_size, length)


class Window(_Elements[WindowState[T], T]):
    """The last `rows` elements, or those of the last `seconds` of event time: `window = hf.Window(float, rows=100)`."""

    at_work = WindowState

    def __init__(
        self,
        kind: type[T],
        *,
        rows: int | None = None,
        seconds: Duration | None = None,
        sample: int = 3,
        element_size: int | None = None,
        length: Length | None = None,
    ) -> None:
        if (rows is None) == (seconds is None):
            raise TopologyError(
                "a Window has either rows= or seconds=.", cure="Write hf.Window(float, rows=100)."
            )
        if rows is not None and (type(rows) is not int or rows < 1):
            raise TopologyError(f"rows={rows!r} is no number of elements.", cure="Give 1 or more.")
        self.kind, self.rows, self.seconds_us = _kind(kind), rows, _micros(seconds, "seconds")
        shape = VariableShape("window", (self.kind.__name__,), rows=rows, us=self.seconds_us)
        super().__init__(shape, (self.kind,), sample, element_size, length)


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
    given = duration_s(length, what) if isinstance(length, str) else length
    given = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1e-6 <= given < 1e11:
        raise TopologyError(
            f"{what}={length!r} is no duration.",
            cure="Give seconds, text such as '5 minutes', or a datetime.timedelta, above zero.",
        )
    return round(given * 1_000_000)
