"""Reading half of the state encoding; see codec.py for the format and what holds.

The bytes may be damaged or hostile: lengths are proved before anything is built, nesting is bounded, and only the
types listed here and in plain_types.py can come out. Any exception means damage; `codec.decode` says so.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import msgpack

from holdfast.state.values import codes, plain_types, user_classes

MAX_DEPTH = 100
"""Containers inside each other, when writing and when reading."""

FACTORIES: dict[str, Callable[[], Any] | None] = {
    "None": None,
    **{t.__name__: t for t in (int, list, dict, set, float, str, tuple, Counter, deque)},
}
"""What a defaultdict may make by itself, by stored name."""


class Decoder:
    """Reads one msgpack object; extensions are msgpack objects again, at most MAX_DEPTH inside each other."""

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
