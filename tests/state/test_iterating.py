"""State that is changed while somebody iterates it: variables do what Python's dict, list and deque do, also while their changes are
followed; with a lifetime a loop sees what there was when it began. Whatever a loop does, what is stored is what the variable holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.state.variables.declarations import Variable
from holdfast.state.variables.variables import List, Map, Window
from holdfast.state.variables.versions import merged, versions_of
from holdfast.state.variables.working_values import UNSET, Clock

ENDLESS = 40
"""A list that grows while it is iterated has no end."""
KEYS, NUMBERS, FEW = st.sampled_from("abcdefgh"), st.integers(0, 9), st.integers(0, 4)
Act = Callable[[Any], Any]

MAP_ACTS = st.one_of(
    st.builds(lambda key, value: lambda it: it.__setitem__(key, value), KEYS, NUMBERS),
    st.builds(lambda key: lambda it: it.pop(key, None), KEYS),
    st.builds(lambda key: lambda it: it.__setitem__(key, it.get(key, 0) + 1) if key in it else None, KEYS),
    st.just(lambda it: it.clear()),
)
LIST_ACTS = st.one_of(
    st.builds(lambda value: lambda it: it.append(value), NUMBERS),
    st.builds(lambda place, value: lambda it: it.insert(place, value), FEW, NUMBERS),
    st.builds(lambda place: lambda it: it.pop(place) if len(it) > place else None, FEW),
    st.builds(lambda place, value: lambda it: it.__setitem__(slice(place, place + 1), [value, value]), FEW, NUMBERS),
    st.just(lambda it: it.reverse()),
)  # fmt: skip
WINDOW_ACTS = st.one_of(
    st.builds(lambda value: lambda it: it.append(value), NUMBERS), st.just(lambda it: it.clear())
)
WALKS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "keys": iter,
    "items": lambda it: iter(it.items()),
    "values": lambda it: iter(it.values()),
}


class Snapshots(dict[str, int]):
    """What a map with a lifetime is like: writing puts an entry last, and loops see what there was."""

    def __setitem__(self, key: str, value: int) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(list(dict.keys(self)))

    def items(self) -> Any:
        return list(dict.items(self))

    def values(self) -> Any:
        return list(dict.values(self))


class Kept(deque[int]):
    """What a window of seconds is like."""

    def __iter__(self) -> Iterator[int]:
        return iter([self[place] for place in range(len(self))])


def walk(it: Any, way: Callable[[Any], Iterator[Any]], acts: list[Act]) -> list[Any]:
    """What a loop sees that does one of the acts behind each element; and how it ends, if not well."""
    seen: list[Any] = []
    left = iter(acts)
    try:
        for each in islice(way(it), ENDLESS):
            seen.append(each)
            next(left, lambda _: None)(it)
    except RuntimeError as error:
        seen.append(type(error))
    return seen


def content(it: Any) -> list[Any]:
    return list(it.items()) if hasattr(it, "items") else list(it)


def at_work(declare: Callable[[], Variable], begin: list[Any]) -> Any:
    variable = declare()
    live: Any = variable.at_work(variable, UNSET, Clock(time=0, mark=0))
    live.set(dict(begin) if hasattr(live, "items") else begin)
    return live


@pytest.mark.parametrize("followed", [False, True], ids=["", "followed"])
@pytest.mark.parametrize("way", WALKS)
@examples(150)
@given(begin=st.dictionaries(KEYS, NUMBERS), acts=st.lists(MAP_ACTS, max_size=6))
@pytest.mark.fault("R11")
def test_a_map(way: str, followed: bool, begin: dict[str, int], acts: list[Act]) -> None:
    check(lambda: Map(str, int), dict(begin), list(begin.items()), WALKS[way], acts, followed)


@pytest.mark.parametrize("way", WALKS)
@examples(150)
@given(begin=st.dictionaries(KEYS, NUMBERS), acts=st.lists(MAP_ACTS, max_size=6))
@pytest.mark.fault("R11")
def test_a_map_with_a_lifetime(way: str, begin: dict[str, int], acts: list[Act]) -> None:
    check(lambda: Map(str, int, ttl=9), Snapshots(begin), list(begin.items()), WALKS[way], acts, False)


@pytest.mark.parametrize("followed", [False, True], ids=["", "followed"])
@examples(150)
@given(begin=st.lists(NUMBERS, max_size=8), acts=st.lists(LIST_ACTS, max_size=8))
@pytest.mark.fault("R11")
def test_a_list(followed: bool, begin: list[int], acts: list[Act]) -> None:
    check(lambda: List(int), list(begin), begin, iter, acts, followed)


@pytest.mark.parametrize("followed", [False, True], ids=["", "followed"])
@examples(100)
@given(begin=st.lists(NUMBERS, max_size=8), acts=st.lists(WINDOW_ACTS, max_size=8))
@pytest.mark.fault("R11")
def test_a_window_of_rows(followed: bool, begin: list[int], acts: list[Act]) -> None:
    check(lambda: Window(int, rows=4), deque(begin, maxlen=4), begin, iter, acts, followed)


@examples(100)
@given(begin=st.lists(NUMBERS, max_size=8), acts=st.lists(WINDOW_ACTS, max_size=8))
@pytest.mark.fault("R11")
def test_a_window_of_seconds(begin: list[int], acts: list[Act]) -> None:
    check(lambda: Window(int, seconds=9), Kept(begin), begin, iter, acts, False)


def check(
    declare: Callable[[], Variable], model: Any, begin: list[Any], way: Any, acts: list[Act], followed: bool
) -> None:
    live = at_work(declare, begin)
    versions = versions_of(live._variable, live) if followed else None
    chain = []
    if versions is not None:
        chain.append(versions.base())
        versions.follow()
    assert walk(live, way, acts) == walk(model, way, acts)
    assert content(live) == content(model)
    if versions is not None:
        delta = versions.delta()
        chain = [versions.base()] if delta is None else chain + [delta] * bool(delta)
        found = merged(str(live._variable.shape), chain)
        again: Any = live._variable.at_work(live._variable, found, Clock(time=0, mark=0))
        assert content(again) == content(model)
