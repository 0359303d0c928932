"""How large a declared state is, estimated from a few samples and the hints of its declaration, without encoding it all.

The size is that of the encoded form. It is exact for single values and for elements of fixed size (float, bool, UUID);
other elements are sampled: `sample` of them, evenly spread. `element_size` says instead what an element has, `length`
how many there are, for structures that only their owner knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any
from uuid import UUID

from holdfast.state.values import codec
from holdfast.state.variables.declarations import Variable, declared, lives_of
from holdfast.state.variables.variables import Value

FIXED: dict[type, int] = {float: 9, bool: 1, UUID: 18}
"""Bytes of an encoded value, for types whose values all have the same."""

_TIMED = 10
"""What an event time adds to an element: a pair, and an integer of eight bytes."""


def state_size(instance: Any) -> int:
    """Bytes of the encoded state of an instance's declared variables; of a keyed operator, of the key at work."""
    variables = declared(type(instance))
    held = lives_of(instance).held()
    sizes = [packed_size(name) + variable_size(variables[name], data) for name, data in held.items()]
    return 1 + _header(len(sizes)) + sum(sizes)


def variable_size(variable: Variable, payload: Any) -> int:
    """Bytes of one variable's encoded payload."""
    if variable.element_size is not None:
        return _count(variable, payload) * variable.element_size
    if isinstance(variable, Value):
        return packed_size(payload)
    count = _count(variable, payload)
    fixed = [FIXED.get(kind) for kind in variable.kinds]
    if None not in fixed:
        timed = _TIMED if variable.needs_time else 0
        return _header(count) + count * (sum(size or 0 for size in fixed) + timed)
    return _header(count) + _sampled(variable, payload, count)


def packed_size(value: Any) -> int:
    """Bytes of a value inside an encoded state."""
    return len(codec.encode(value)) - 1


def _count(variable: Variable, payload: Any) -> int:
    if variable.length is not None:
        return variable.length if isinstance(variable.length, int) else int(variable.length(payload))
    if isinstance(variable, Value):
        return 1
    return len(payload)


def _sampled(variable: Variable, payload: Collection[Any], count: int) -> int:
    elements: Iterable[Any] = payload.items() if isinstance(payload, dict) else payload
    size: Callable[[Any], int] = _pair_size if isinstance(payload, dict) else packed_size
    wanted = min(variable.sample, len(payload))
    # From the middle of each of as many equal stretches.
    every = len(payload) / wanted
    places = [int((number + 0.5) * every) for number in range(wanted)]
    sizes = [size(each) for each in _at(elements, places)]
    return round(count * sum(sizes) / len(sizes))


def _at(elements: Iterable[Any], places: list[int]) -> list[Any]:
    if isinstance(elements, list | deque):
        return [elements[place] for place in places]
    walk, passed = iter(elements), 0
    found: list[Any] = []
    for place in places:
        found += islice(walk, place - passed, place - passed + 1)
        passed = place + 1
    return found


def _pair_size(pair: tuple[Any, Any]) -> int:
    return packed_size(pair[0]) + packed_size(pair[1])


def _header(count: int) -> int:
    """What msgpack writes before the elements of a list or dict."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5
