"""Type-exact encoding of Python values to bytes and back. Data only: nothing is ever executed or unpickled.

Format (version 1): one byte 0x01, then one msgpack object. None, bool, 64-bit int, float, str, bytes, list and dict are
msgpack's own; every other type is an extension whose code is listed in `codes.py` and whose payload is a
msgpack object again. Elements of sets are ordered by their bytes, so equal values of equal history give equal bytes.

What holds:
- `decode(encode(x))` has the type and value of x at every level: ints of any size, -0.0, NaN, tuple keys, insertion order.
- Types are exact: a subclass of a supported type is refused unless it is registered (`user_classes.py`).
- Aliasing is not kept: one list referenced twice becomes two equal lists. A cycle is refused.
- Nesting is limited to MAX_DEPTH, when writing and when reading.
- Bytes that `encode` did not write give DamagedError, a registered name that is not there gives StateError; memory
  stays within a small multiple of the input (Arrow data excepted if it was compressed, which `encode` never does).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack

from holdfast.errors import DamagedError, HoldfastError, StateError
from holdfast.state.values import codes, packing, plain_types, user_classes
from holdfast.state.values.exact_comparison import difference

VERSION = 1

NOT_DATA_CURE = (
    "Start the name with '_' and rebuild it in open(), or implement checkpoint() and reset(); "
    "a dataclass or Enum of your own can be registered."
)

MAX_DEPTH = 100
"""Containers inside each other, when writing and when reading."""

FACTORIES: dict[str, Callable[[], Any] | None] = {
    "None": None,
    **{t.__name__: t for t in (int, list, dict, set, float, str, tuple, Counter, deque)},
}
"""What a defaultdict may make by itself, by stored name."""

_FACTORY_NAMES = {factory: name for name, factory in FACTORIES.items()}


def encode(value: Any, *, path: str = "state") -> bytes:
    """The bytes of `value`. Raises StateError naming the place of what is not data, starting with `path`."""
    return freeze(value, path=path).encoded()


def encode_attributes(attributes: dict[str, Any]) -> bytes:
    """`encode(attributes)`, with errors that speak of attributes."""
    return freeze_attributes(attributes).encoded()


class Frozen:
    """A value as it was, whatever becomes of it: containers are copied, bytes and texts are not. `encoded` may be called later, by another
    thread; what is large is copied once, and other threads have their turn meanwhile."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def encoded(self) -> bytes:
        return b"".join([bytes([VERSION]), *packing.parts(self._tree)])


def freeze(value: Any, *, path: str = "state") -> Frozen:
    """The first part of `encode`, which raises its errors."""
    return Frozen(_Encoder(path).tree(value))


def freeze_attributes(attributes: dict[str, Any]) -> Frozen:
    """The same with errors that speak of attributes."""
    return Frozen({name: _Encoder(f"attribute {name!r}").tree(value) for name, value in attributes.items()})


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` wrote."""
    if not data or data[0] != VERSION:
        raise DamagedError(
            "these bytes are not an encoded state, or come from a newer holdfast.",
            cure="Restore an older epoch, or use the version that wrote them.",
        )
    try:
        return _Decoder().value(memoryview(data)[1:])
    except HoldfastError:
        raise
    except Exception as error:  # whatever the bytes provoked, the answer is the same
        raise DamagedError(
            f"an encoded state is damaged: {type(error).__name__}: {error}.", cure="Restore an older epoch."
        ) from error


def check_round_trip(value: Any, path: str = "state") -> bytes:
    """Encode, decode, compare exactly; the bytes if all is well, else StateError naming the place that differs."""
    data = encode(value, path=path)
    place = difference(value, decode(data), _by_bytes)
    if place is not None:
        raise StateError(
            f"{path}{place} does not come back from its stored form unchanged.", cure=NOT_DATA_CURE
        )
    return data


def _by_bytes(value: Any) -> bytes:
    return encode(value)


# --- writing --------------------------------------------------------------------------------------------------------

_NATIVE = frozenset({type(None), bool, float, bytes})


class _Encoder:
    """Turns one value into a tree msgpack can write; knows where it is, for cycles, depth and messages."""

    def __init__(self, path: str) -> None:
        self._path = [path]
        self._in_key = False
        self._open: set[int] = set()
        self._containers: dict[type, Callable[[Any], Any]] = {
            list: self._items,
            dict: self._pairs,
            tuple: lambda v: self._ext(codes.TUPLE, self._items(v)),
            set: lambda v: self._ext(codes.SET, self._elements(v)),
            frozenset: lambda v: self._ext(codes.FROZENSET, self._elements(v)),
            deque: lambda v: self._ext(codes.DEQUE, [v.maxlen, self._items(v)]),
            Counter: lambda v: self._ext(codes.COUNTER, self._pairs(v)),
            OrderedDict: lambda v: self._ext(codes.ORDERED_DICT, self._pairs(v)),
            defaultdict: self._defaultdict,
        }

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if kind in _NATIVE:
            return value
        if kind is int:
            return (
                value
                if -(1 << 63) <= value < 1 << 64
                else self._ext(codes.BIG_INT, plain_types.big_int_bytes(value))
            )
        if kind is str:
            return self._text(value)
        container = self._containers.get(kind)
        if container is not None:
            with self._inside(value):
                return container(value)
        if user_classes.is_registered(kind):
            with self._inside(value):
                return self._registered(value)
        leaf = plain_types.find(kind)
        if leaf is None:
            raise self._refusal(value)
        return self._leaf(leaf, value)

    def _leaf(self, leaf: plain_types.Leaf, value: Any) -> Any:
        try:
            return self._ext(leaf.code, leaf.pack(value))
        except plain_types.NotStorable as error:
            raise StateError(f"{self._place()} {error}.", cure=NOT_DATA_CURE) from error

    def _ext(self, code: int, body: Any) -> Any:
        if type(body) is bytes:
            return msgpack.ExtType(code, body)
        return msgpack.ExtType(code, packing.pack(body)) if self._in_key else packing.Later(code, body)

    def _key(self, key: Any) -> Any:
        """Keys are compared by their bytes."""
        outside, self._in_key = self._in_key, True
        tree = self.tree(key)
        self._in_key = outside
        return tree

    def _text(self, value: str) -> Any:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return self._ext(codes.SURROGATE_STR, value.encode("utf-8", "surrogatepass"))
        return value

    def _items(self, values: Iterable[Any]) -> list[Any]:
        self._path.append("")
        result = []
        for index, value in enumerate(values):
            self._path[-1] = f"[{index}]"
            result.append(value if type(value) in _NATIVE else self.tree(value))
        self._path.pop()
        return result

    def _elements(self, values: Iterable[Any]) -> list[Any]:
        self._path.append(" (an element)")
        result = sorted((self.tree(value) for value in values), key=packing.pack)
        self._path.pop()
        return result

    def _pairs(self, mapping: dict[Any, Any]) -> Any:
        """A msgpack map; or a list of pairs where two keys have the same bytes (tuples that hold NaN)."""
        self._path.append("")
        keys, values = [], []
        for key, value in mapping.items():
            self._path[-1] = f"[{_short(key)}]"
            keys.append(self._key(key))
            values.append(self.tree(value))
        self._path.pop()
        tree = dict(zip(keys, values, strict=True))
        if len(tree) == len(keys):
            return tree
        return self._ext(codes.PAIRS, list(zip(keys, values, strict=True)))

    def _defaultdict(self, value: defaultdict[Any, Any]) -> Any:
        try:
            name = _FACTORY_NAMES[value.default_factory]
        except (KeyError, TypeError):
            known = ", ".join(FACTORIES)
            raise StateError(
                f"{self._place()} holds a defaultdict whose factory is {value.default_factory!r}.",
                cure=f"Use one of {known}, or a plain dict.",
            ) from None
        return self._ext(codes.DEFAULT_DICT, [name, self._pairs(value)])

    def _registered(self, value: Any) -> Any:
        member = user_classes.enum_member(value)
        if member is not None:
            return self._ext(codes.ENUM, list(member))
        name, fields = user_classes.dataclass_fields(value, self._place())
        self._path.append("")
        body = {}
        for field, content in fields.items():
            self._path[-1] = f".{field}"
            body[field] = self.tree(content)
        self._path.pop()
        return self._ext(codes.DATACLASS, [name, body])

    @contextmanager
    def _inside(self, value: Any) -> Iterator[None]:
        if id(value) in self._open:
            raise StateError(
                f"{self._place()} contains itself.",
                cure="A cycle is not data; store names or numbers instead.",
            )
        if len(self._open) >= MAX_DEPTH:
            raise StateError(f"{self._place()} is nested deeper than {MAX_DEPTH} levels.", cure="Flatten it.")
        self._open.add(id(value))
        yield
        self._open.discard(id(value))

    def _place(self) -> str:
        return "".join(self._path)

    def _refusal(self, value: Any) -> StateError:
        kind = type(value)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        name = "threading.Lock" if name == "_thread.lock" else name
        base = next(
            (b for b in kind.__mro__[1:] if b in self._containers or b in _SCALARS or plain_types.find(b)),
            None,
        )
        if base is not None:
            why = f"a subclass of {base.__name__}: only exact types come back unchanged"
        else:
            why = "which is not data"
        return StateError(f"{self._place()} holds a {name}, {why}.", cure=NOT_DATA_CURE)


_SCALARS = frozenset({int, float, str, bytes, bool})


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 60 else text[:57] + "..."


# --- reading --------------------------------------------------------------------------------------------------------


class _Decoder:
    """Reads one msgpack object; extensions are msgpack objects again, at most MAX_DEPTH inside each other.

    The bytes may be damaged or hostile: lengths are proved before anything is built, nesting is bounded, and only the
    types listed here and in plain_types.py can come out. Any exception means damage; `decode` says so."""

    def __init__(self) -> None:
        self._depth = 0

    def value(self, data: memoryview | bytes) -> Any:
        # A first pass without building anything proves that announced lengths are really there.
        scanner = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
        scanner.feed(data)
        scanner.skip()
        if scanner.tell() != len(data):
            raise ValueError("bytes follow the value")
        return msgpack.unpackb(data, ext_hook=self._extension, strict_map_key=False, raw=False)

    def _extension(self, code: int, data: bytes) -> Any:
        if code == codes.BIG_INT:
            return int.from_bytes(data, "big", signed=True)
        if code == codes.SURROGATE_STR:
            return bytes(data).decode("utf-8", "surrogatepass")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        try:
            build = _CONTAINERS.get(code)
            if build is not None:
                return build(self.value(data))
            leaf = plain_types.by_code(code)
            return leaf.unpack(bytes(data) if leaf.raw else self.value(data))
        finally:
            self._depth -= 1


def _built_pairs(body: Any) -> dict[Any, Any]:
    return dict(_listed(body))


def _built_deque(body: Any) -> deque[Any]:
    maxlen, items = body
    return deque(_listed(items), maxlen=maxlen)


def _built_defaultdict(body: Any) -> defaultdict[Any, Any]:
    name, pairs = body
    return defaultdict(FACTORIES[name], _mapped(pairs))


def _mapped(body: Any) -> dict[Any, Any]:
    if type(body) is not dict:
        raise ValueError("a map is expected")
    return body


def _listed(body: Any) -> list[Any]:
    if type(body) is not list:
        raise ValueError("a list is expected")
    return body


_CONTAINERS: dict[int, Callable[[Any], Any]] = {
    codes.TUPLE: lambda body: tuple(_listed(body)),
    codes.SET: lambda body: set(_listed(body)),
    codes.FROZENSET: lambda body: frozenset(_listed(body)),
    codes.DEQUE: _built_deque,
    codes.COUNTER: lambda body: Counter(_mapped(body)),
    codes.ORDERED_DICT: lambda body: OrderedDict(_mapped(body)),
    codes.DEFAULT_DICT: _built_defaultdict,
    codes.PAIRS: _built_pairs,
    codes.DATACLASS: lambda body: user_classes.build_dataclass(*body),
    codes.ENUM: lambda body: user_classes.build_enum(*body),
}
