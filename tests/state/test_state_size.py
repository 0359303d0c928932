"""Sizes of any state: near to what is stored, whatever its form, at a cost that does not grow with it."""

from __future__ import annotations

import datetime as dt
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import StateError
from holdfast.state.values import codec
from holdfast.state.variables.instance_state import take_state
from holdfast.state.variables.sampled_size import MOST_LOOKED, elements_at, places, sampled_size
from holdfast.state.variables.state_size import own_size, state_size, whole_size


def stored(value: Any) -> int:
    return len(codec.encode(value)) - 1


SINGLE = [
    None, True, 0, -1, 127, 1 << 40, -(1 << 62), 1 << 80, 0.5, "", "x" * 31, "x" * 32, "x" * 300, "x" * 70_000,
    "grün", b"", b"x" * 255, b"x" * 70_000, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.timedelta(1),
]  # fmt: skip


@pytest.mark.parametrize("value", SINGLE, ids=lambda value: repr(value)[:20])
def test_single_values_are_exact(value: Any) -> None:
    assert sampled_size(value) == stored(value)


LARGE = [
    [1.5] * 100_000,
    deque((n, n + 0.5) for n in range(100_000, 150_000)),
    {f"key {n:6}": [n + 1000] * 5 for n in range(60_000)},
    {n << 20 for n in range(4096, 50_000)},
    tuple({"a": b"x" * 50} for _ in range(1000)),
    Counter({f"w{n:5}": 1000 + n for n in range(5000)}),
    np.zeros((1000, 7)),
    [np.ones(2000, dtype="int32") for _ in range(50)],
    [pa.table({"a": list(range(5000))})] * 9,
    "ü" * 100_000,
]


@pytest.mark.parametrize("value", LARGE, ids=lambda value: type(value).__name__)
def test_large_ones_are_near(value: Any) -> None:
    assert sampled_size(value) == pytest.approx(stored(value), rel=0.2)


class Counted(Sequence[Any]):
    """A list that knows how often it was looked at."""

    looked = 0

    def __init__(self, inside: Any, length: int) -> None:
        self._inside, self._length = inside, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        Counted.looked += 1
        return self._inside

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self[0]


def test_the_cost_is_bounded_however_large_and_deep_it_is() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = Counted(deep, 10**9)
    Counted.looked = 0
    assert sampled_size(deep) > 0
    assert 100 < Counted.looked <= 3 * MOST_LOOKED


def test_what_contains_itself_is_no_endless_loop() -> None:
    loop: list[Any] = [1, 2]
    loop.append(loop)
    assert sampled_size(loop) > 0
    many = {n: {} for n in range(5)}
    for each in many.values():
        each.update(many)  # type: ignore[arg-type]
    assert sampled_size(many) > 0


@given(st.integers(0, 5000), st.integers(1, 12))
def test_samples_are_the_first_the_last_and_between(count: int, sample: int) -> None:
    found = places(count, sample)
    assert len(found) == min(count, sample)
    assert found == sorted(set(found))
    if len(found) > 1:
        assert (found[0], found[-1]) == (0, count - 1)
    for elements in (list(range(count)), dict.fromkeys(range(count)), deque(range(count))):
        seen = elements_at(elements, found)
        assert len(seen) == len(found)
        assert seen == sorted(set(seen)), "none twice, in order"
        if len(found) > 1:
            assert (seen[0], seen[-1]) == (0, count - 1)


def test_three_samples_are_the_first_the_middle_and_the_last() -> None:
    assert places(101, 3) == [0, 50, 100]
    assert sampled_size(["a", *["bb"] * 49, "ccc", *["bb"] * 49, "eeeee"]) == 3 + round(101 * (2 + 4 + 6) / 3)


class Pool:
    __slots__ = ("_cache", "number", "rows")

    def __init__(self) -> None:
        self.rows = [np.arange(100.0)] * 20
        self.number = 3
        self._cache = b"x" * 10_000

    def process(self, row: Any, port: int) -> None: ...


class Returns(hf.Operator):
    def __init__(self) -> None:
        self._kept = [1.0] * 1000

    def checkpoint(self) -> Any:
        return self._kept

    def reset(self, value: Any) -> None:
        self._kept = value


class Both(hf.Operator):
    declared = hf.List(float)

    def __init__(self) -> None:
        self.plain = ["abc"] * 500
        self._not = [0] * 5000


def test_attributes_count_like_declared_variables_and_private_ones_do_not() -> None:
    assert whole_size(Pool()) == pytest.approx(len(take_state(Pool())), rel=0.2)
    both = Both()
    both.declared.extend([0.5] * 300)
    assert both.state_size() == pytest.approx(len(take_state(both)), rel=0.02)
    assert both.state_size() > state_size(both) + 1000


def test_what_checkpoint_may_return_counts_though_it_is_private() -> None:
    assert Returns().state_size() == pytest.approx(len(take_state(Returns())), rel=0.1)


class Odd:
    def __init__(self, says: Any) -> None:
        self._says = says

    def state_size(self) -> Any:
        return self._says


def test_an_operator_may_say_it_itself() -> None:
    assert own_size(Odd(7)) == 7
    assert own_size(Odd(7.9)) == 7
    for says in (-1, "7", None, True, float("nan"), float("inf")):
        with pytest.raises(StateError, match=r"state_size\(\) of Odd returned .* no number of bytes"):
            own_size(Odd(says))
