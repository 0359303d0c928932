"""The state of a hosted operator: public attributes, or what its own handler says."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.errors import StateError
from holdfast.state.variables.instance_state import (
    check_state,
    give_state,
    initial_state,
    restore,
    take_state,
    to_initial,
)


class Plain:
    shared: tuple[str, ...] = ("class attributes are not state",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._lock: Any = None
        self.opened = 0

    def open(self) -> None:
        self._lock = threading.Lock()


class Slotted:
    __slots__ = ("_cache", "late", "total")

    def __init__(self) -> None:
        self.total = 0
        self._cache = object()


class Handled:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.items: list[int] = []
        self.calls: list[str] = []

    def checkpoint(self) -> tuple[int, ...]:
        return tuple(self.items)

    def reset(self, value: tuple[int, ...]) -> None:
        self.items = list(value)
        self.calls.append("reset")

    def reset_to_initial_state(self) -> None:
        self.items = []
        self.calls.append("initial")

    def open(self) -> None:
        self.calls.append("open")


def test_public_attributes_come_back_and_the_rest_is_rebuilt() -> None:
    op = Plain()
    pristine = initial_state(op)
    restore(op, None, pristine)
    op.counts["a"] = 1
    op.extra = (1, 2)  # type: ignore[attr-defined]
    check_state(op)
    data = take_state(op)
    other = Plain()
    other.stale = 1  # type: ignore[attr-defined]
    restore(other, data, pristine)
    assert other.counts == {"a": 1}
    assert other.extra == (1, 2)  # type: ignore[attr-defined]
    assert not hasattr(other, "stale")
    assert other._lock is not None
    to_initial(other, pristine)
    assert other.counts == {}
    assert not hasattr(other, "extra")


def test_slots_count_as_attributes() -> None:
    op = Slotted()
    pristine = initial_state(op)
    op.total, op.late = 5, [1]  # type: ignore[misc]
    data = take_state(op)
    other = Slotted()
    give_state(other, data)
    assert (other.total, other.late) == (5, [1])  # type: ignore[misc]
    to_initial(other, pristine)
    assert not hasattr(other, "late")


def test_handlers_take_over_in_order() -> None:
    op = Handled()
    pristine = initial_state(op)
    restore(op, None, pristine)
    assert op.calls == ["initial", "open"]
    op.items.append(1)
    check_state(op)
    data = take_state(op)
    op.items.append(2)
    restore(op, data, pristine)
    assert op.items == [1]
    assert op.calls == ["initial", "open", "reset", "open"]


def test_half_a_handler_is_refused() -> None:
    class Half:
        def checkpoint(self) -> int:
            return 1

    with pytest.raises(StateError, match=r"has checkpoint\(\) but no reset\(\)"):
        initial_state(Half())


def test_an_attribute_that_is_not_data_is_named() -> None:
    op = Plain()
    op.counts = {"x": threading.Lock()}  # type: ignore[dict-item]
    for function in (take_state, check_state):
        with pytest.raises(StateError, match=r"attribute 'counts'\['x'\] holds a threading\.Lock"):
            function(op)


def test_a_stored_attribute_that_cannot_be_set_is_named() -> None:
    with pytest.raises(StateError, match="'counts'"):
        give_state(Slotted(), take_state(Plain()))


def test_a_state_made_by_a_handler_does_not_fit_an_operator_without() -> None:
    op = Handled()
    with pytest.raises(StateError, match="made by checkpoint"):
        give_state(Plain(), take_state(op))
