"""How large the state of an operator is, estimated from a few samples and the hints of its declarations, without encoding it
all: it may be asked many times a second.

The size is that of the encoded form. It is exact for single values and for elements of fixed size (float, bool, UUID);
other elements are sampled: `sample` of them, evenly spread, the first and the last among them. `element_size` says instead
what an element has, `length` how many there are, for structures that only their owner knows. Plain attributes are sampled
too (sampled_size.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from holdfast.errors import StateError
from holdfast.state.variables.declarations import Variable, declared, lives_of
from holdfast.state.variables.sampled_size import elements_at, header, packed_size, places, sampled_size
from holdfast.state.variables.variables import Value

FIXED: dict[type, int] = {float: 9, bool: 1, UUID: 18}
"""Bytes of an encoded value, for types whose values all have the same."""

_TIMED = 10
"""What an event time adds to an element: a pair, and an integer of eight bytes."""

_OURS = frozenset({"_submit", "_hf_live", "_hf_key"})
"""Attributes of an instance that the runtime put there."""


def state_size(instance: Any) -> int:
    """Bytes of the encoded state of an instance's declared variables; of a keyed operator, of the key at work."""
    variables = declared(type(instance))
    held = lives_of(instance).held() if variables else {}
    sizes = [packed_size(name) + variable_size(variables[name], data) for name, data in held.items()]
    return 1 + header(len(sizes)) + sum(sizes)


def whole_size(instance: Any) -> int:
    """Bytes of all that a Python operator hosted in the driver has to store: declared variables and plain attributes. Those
    that begin with "_" count only where checkpoint() may return them."""
    attributes = held_attributes(instance, private=callable(getattr(type(instance), "checkpoint", None)))
    sizes = [sampled_size(name) + sampled_size(value) for name, value in attributes.items()]
    return state_size(instance) + sum(sizes)


def own_size(instance: Any) -> int:
    """What the operator's own `state_size()` says. StateError if that is no number of bytes."""
    size = instance.state_size()
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < float("inf"):
        raise StateError(
            f"state_size() of {type(instance).__name__} returned {size!r}, which is no number of bytes.",
            cure="Return 0 or more, or leave the method out.",
        )
    return int(size)


def held_attributes(instance: Any, private: bool) -> dict[str, Any]:
    """Instance attributes by name, without what is not state."""
    found = {
        name: getattr(instance, name)
        for cls in type(instance).__mro__
        for name in _slots(cls)
        if hasattr(instance, name)
    }
    found |= getattr(instance, "__dict__", {})
    return {n: v for n, v in found.items() if n not in _OURS and (private or not n.startswith("_"))}


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def variable_size(variable: Variable, payload: Any) -> int:
    """Bytes of one variable's encoded payload."""
    if variable.element_size is not None:
        return _count(variable, payload) * variable.element_size
    if isinstance(variable, Value):
        return sampled_size(payload)
    count = _count(variable, payload)
    fixed = [FIXED.get(kind) for kind in variable.kinds]
    if None not in fixed:
        timed = _TIMED if variable.needs_time else 0
        return header(count) + count * (sum(size or 0 for size in fixed) + timed)
    return header(count) + _sampled(variable, payload, count)


def _count(variable: Variable, payload: Any) -> int:
    if variable.length is not None:
        return variable.length if isinstance(variable.length, int) else int(variable.length(payload))
    if isinstance(variable, Value):
        return 1
    return len(payload)


def _sampled(variable: Variable, payload: Collection[Any], count: int) -> int:
    elements: Collection[Any] = payload.items() if isinstance(payload, dict) else payload
    size: Callable[[Any], int] = _pair_size if isinstance(payload, dict) else sampled_size
    sizes = [size(each) for each in elements_at(elements, places(len(payload), variable.sample))]
    return round(count * sum(sizes) / len(sizes))


def _pair_size(pair: tuple[Any, Any]) -> int:
    return sampled_size(pair[0]) + sampled_size(pair[1])
