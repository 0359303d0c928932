"""How many bytes any Python value would have encoded, estimated at a cost that does not grow with the value.

Single values are exact. Of a container three elements are looked at by default, the first, the middle and the last, and so on
inside of them; its size is the number of its elements times their average. Elements that differ a lot make that a rough
estimate; who knows better says so (`element_size=`, `length=`, or `state_size()` of the operator).

Must hold: at most MOST_LOOKED values are looked at, at most MOST_DEEP inside each other, whatever is given, also if it
contains itself.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np

from holdfast.state.values import codec, plain_types

SAMPLE = 3
"""Elements of a container that are looked at, unless its declaration says otherwise."""
MOST_LOOKED = 2000
"""Values that are looked at for one estimate."""
MOST_DEEP = 16
"""Containers inside each other that are looked into."""
WALKED = 64
"""How far a container that cannot be indexed is walked through, from either end, to reach an element."""
UNKNOWN = 16
"""Bytes of a value that nobody looks at any more."""
TEXT_LOOKED = 1024
"""Characters that are encoded to find out how many bytes the characters of a text have."""
ARRAY_HEADER = 32
"""About what is stored beside the numbers of an array: type and shape."""

_SCALARS = (type(None), bool, int, float)


def sampled_size(value: Any) -> int:
    """About how many bytes `value` has inside an encoded state."""
    return _Estimate().size(value)


def packed_size(value: Any) -> int:
    """Bytes of a value inside an encoded state, exactly: it is encoded."""
    return len(codec.encode(value)) - 1


def places(count: int, sample: int) -> list[int]:
    """Which of `count` elements are looked at: evenly spread, the first and the last among them; of one, the middle."""
    wanted = min(count, sample)
    if wanted <= 1:
        return [count // 2] * wanted
    return [number * (count - 1) // (wanted - 1) for number in range(wanted)]


def elements_at(elements: Collection[Any], wanted: Sequence[int]) -> list[Any]:
    """The elements at some places, ascending; of a container that cannot be indexed perhaps others nearer to its ends."""
    if isinstance(elements, Sequence | deque):
        return [elements[place] for place in wanted]
    last = len(elements) - 1
    behind = [place for place in wanted if place > last // 2] if hasattr(elements, "__reversed__") else []
    ahead = wanted[: len(wanted) - len(behind)]
    backwards = [last - place for place in reversed(behind)]
    found = _walked(elements, ahead)
    return found + (_walked(reversed(elements), backwards)[::-1] if behind else [])  # type: ignore[call-overload]


def _walked(elements: Iterable[Any], wanted: Sequence[int]) -> list[Any]:
    walk, passed = iter(elements), 0
    found: list[Any] = []
    for number, place in enumerate(wanted):
        place = max(passed, min(place, WALKED + number))
        found += islice(walk, place - passed, place - passed + 1)
        passed = place + 1
    return found


def header(count: int) -> int:
    """What msgpack writes before the elements of a list or dict."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


class _Estimate:
    """One estimate, and how many values it has looked at."""

    def __init__(self) -> None:
        self._looked = self._depth = 0

    def size(self, value: Any) -> int:
        self._looked += 1
        if self._looked > MOST_LOOKED or self._depth > MOST_DEEP:
            return UNKNOWN
        self._depth += 1
        try:
            return self._size(value)
        finally:
            self._depth -= 1

    def _size(self, value: Any) -> int:
        if isinstance(value, _SCALARS):
            return packed_size(value) if type(value) in _SCALARS else UNKNOWN
        if isinstance(value, str):
            return _text_size(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return _raw_header(memoryview(value).nbytes) + memoryview(value).nbytes
        if isinstance(value, np.ndarray) and value.dtype != object:
            return ARRAY_HEADER + value.nbytes
        if isinstance(value, Mapping):
            return header(len(value)) + self._many(value.items(), self._sum)
        if isinstance(value, Sequence | Set | deque):
            return header(len(value)) + self._many(value, self.size)
        return self._other(value)

    def _many(self, elements: Collection[Any], size: Callable[[Any], int]) -> int:
        sizes = [size(each) for each in elements_at(elements, places(len(elements), SAMPLE))]
        return round(len(elements) * sum(sizes) / len(sizes)) if sizes else 0

    def _sum(self, values: Iterable[Any]) -> int:
        return sum(map(self.size, values))

    def _other(self, value: Any) -> int:
        large = getattr(value, "nbytes", None)  # Arrow's tables and arrays, frames of others
        if isinstance(large, int):
            return ARRAY_HEADER + large
        if plain_types.find(type(value)) is not None:
            return packed_size(value)
        if isinstance(value, enum.Enum):
            return UNKNOWN
        slots = [name for cls in type(value).__mro__ for name in _names(cls.__dict__.get("__slots__", ()))]
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        held |= getattr(value, "__dict__", {})
        return header(len(held)) + self._sum(held) + self._sum(held.values())


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _text_size(text: str) -> int:
    if text.isascii():
        size = len(text)
    else:
        looked = len(text[:TEXT_LOOKED].encode("utf-8", "surrogatepass"))
        size = round(looked * len(text) / min(len(text), TEXT_LOOKED))
    return (1 if size < 32 else _raw_header(size)) + size


def _raw_header(size: int) -> int:
    return 2 if size < 1 << 8 else 3 if size < 1 << 16 else 5
