"""Declared variables stored as bases and deltas: what is merged is what was there, whatever was done and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.errors import StateError
from holdfast.state.values import codec
from holdfast.state.variables.change_tracking import PIECES_MAX, disable, enable, log_of
from holdfast.state.variables.declarations import Variable
from holdfast.state.variables.variables import List, Map, Value, Window
from holdfast.state.variables.versions import Versions, merged, versions_of
from holdfast.state.variables.working_values import UNSET, Clock, ListState, MapState, WindowState

# --- random histories --------------------------------------------------------------------------------------------------

INTS = st.integers(0, 6)
ANYTHING = st.one_of(
    INTS,
    st.sampled_from([None, True, 1.5, -0.0, 0.0, float("nan"), "x", (1, 2)]),
    st.builds(lambda n: [n], INTS),
    st.builds(lambda n: (1, {"a": n}), INTS),
)
WORDS = st.sampled_from("abcdefghij")
AWKWARD = st.one_of(
    WORDS,
    st.sampled_from([0, 0.0, -0.0, False, 1, True, 1.0, None, (1, 2)]),
    st.builds(lambda: float("nan")),
    st.builds(lambda n: (n, float("nan")), INTS),
)
PLACES = st.one_of(st.none(), st.integers(-8, 12))
SLICES = st.builds(slice, PLACES, PLACES, st.sampled_from([None, None, 1, 2, -1]))

Act = Callable[[Any], Any]


def act(what: Callable[..., Any], *given: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    return st.tuples(*given).map(lambda chosen: lambda live: what(live, *chosen))


def in_place(live: Any, number: int) -> None:
    """Change something inside a value, as nobody can see."""
    values = [live.get()] if hasattr(live, "get") and not isinstance(live, MapState) else list(live)
    values = list(live.values()) if isinstance(live, MapState) else values
    inner = [each[1] if type(each) is tuple and len(each) > 1 else each for each in values]
    found = [each for each in inner if type(each) in (list, dict)]
    if found:
        chosen = found[number % len(found)]
        chosen.append(number) if type(chosen) is list else chosen.update(b=number)


def map_acts(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    return st.one_of(
        act(lambda live, key, value: live.update([(key, value)]), keys, values),
        act(lambda live, key, value: live.setdefault(key, value), keys, values),
        act(lambda live, place: live.pop(list(live)[place % len(live)]) if live else None, INTS),
        act(lambda live: live.popitem() if live else None),
        act(lambda live: live.clear()) | act(lambda live: live.set(dict(live))),
        act(in_place, INTS),
    )


def list_acts(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    many = st.lists(values, max_size=4)
    return st.one_of(
        act(lambda live, each: live.extend(each), many),
        act(lambda live, place, value: live.insert(place, value), st.integers(-8, 12), values),
        act(lambda live, place, value: live.__setitem__(place, value), st.integers(-8, 12), values),
        act(lambda live, place: live.__delitem__(place), st.integers(-8, 12)),
        act(lambda live, where: live.__delitem__(where), SLICES),
        act(lambda live, where, each: live.__setitem__(where, each), SLICES, many),
        act(lambda live: live.reverse()) | act(lambda live: live.clear()),
        act(in_place, INTS),
    )


def window_acts(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    return st.one_of(
        act(lambda live, value: live.append(value), values),
        act(lambda live: live.clear()) | act(lambda live, each: live.set(each), st.lists(values, max_size=3)),
        act(in_place, INTS),
    )


SUBJECTS: dict[str, tuple[Callable[[], Variable], st.SearchStrategy[Act]]] = {
    "map of numbers": (lambda: Map(str, int), map_acts(WORDS, INTS)),
    "map of anything": (lambda: Map(str, object), map_acts(WORDS, ANYTHING)),
    "map with awkward keys": (lambda: Map(object, object), map_acts(AWKWARD, ANYTHING)),
    "list of numbers": (lambda: List(int), list_acts(INTS)),
    "list of anything": (lambda: List(object), list_acts(ANYTHING)),
    "window of numbers": (lambda: Window(int, rows=5), window_acts(INTS)),
    "window of anything": (lambda: Window(object, rows=7), window_acts(ANYTHING)),
    "value": (
        lambda: Value(object),
        act(lambda cell, value: cell.set(value), ANYTHING) | act(in_place, INTS),
    ),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@examples(100)
@given(data=st.data())
@pytest.mark.fault("R10")
def test_merged_versions_are_what_the_variable_held(subject: str, data: st.DataObject) -> None:
    declare, acts = SUBJECTS[subject]
    variable = declare()
    live: Any = variable.at_work(variable, UNSET, Clock())
    versions = versions_of(variable, live)
    chain: list[bytes] = []
    for wanted, then, done in data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["base", "delta", "delta"]),
                st.sampled_from(["follow", "follow", "follow", "forget", "restore"]),
                st.lists(acts, max_size=8),
            ),
            max_size=8,
        )
    ):
        for each in done:
            try:
                each(live)
            except (IndexError, ValueError):
                pass  # a place that is not there, or an extended slice of another length
        taken = versions.delta() if wanted == "delta" and chain else None
        chain = [versions.base()] if taken is None else chain + [taken] * bool(taken)
        found = merged(str(variable.shape), chain)
        assert stored(found) == stored(live.held())
        if then == "restore":
            live = variable.at_work(variable, found, Clock())
            versions = versions_of(variable, live)
        versions.forget() if then == "forget" else versions.follow()


def stored(payload: Any) -> bytes:
    """Exact to types, signs of zero and order; NaN equals NaN."""
    if payload is UNSET:
        return codec.encode([])
    return codec.encode([payload if isinstance(payload, dict) else _plain(payload)])


def _plain(payload: Any) -> Any:
    return list(payload) if hasattr(payload, "maxlen") else payload


# --- what a delta costs -------------------------------------------------------------------------------------------------


def followed(variable: Variable, fill: Callable[[Any], Any]) -> tuple[Any, Versions]:
    variable.name = "it"
    live: Any = variable.at_work(variable, UNSET, Clock())
    fill(live)
    versions = versions_of(variable, live)
    versions.follow()
    return live, versions


def test_a_delta_has_the_size_of_the_change() -> None:
    numbers, of_map = followed(Map(str, int), lambda live: live.update({f"k{n}": n for n in range(5000)}))
    numbers["k7"] = 0
    del numbers["k8"]
    assert 0 < len(of_map.delta() or b"") < 40
    line, of_list = followed(List(int), lambda live: live.extend(range(5000)))
    del line[1000:1010]
    line[3] = 0
    line.append(1)
    assert 0 < len(of_list.delta() or b"") < 60
    window, of_window = followed(Window(int, rows=5000), lambda live: live.set(range(5000)))
    window.append(1)
    assert 0 < len(of_window.delta() or b"") < 40


def test_what_did_not_change_has_an_empty_delta() -> None:
    for variable, fill in (
        (Map(str, list), lambda live: live.update(a=[1])),
        (List(dict), lambda live: live.append({"a": 1})),
        (Window(int, rows=3), lambda live: live.append(1)),
        (Value(str, default=""), lambda live: live.set("x")),
        (Value(list), lambda live: live.set([1])),
    ):
        _, versions = followed(variable, fill)  # type: ignore[arg-type]
        assert versions.delta() == b"", str(variable.shape)


def test_a_key_that_came_and_went_leaves_nothing() -> None:
    live, versions = followed(Map(str, int), lambda live: live.update(a=1))
    live["b"] = 1
    del live["b"]
    assert versions.delta() == b""


def test_everything_new_makes_a_base() -> None:
    for variable, change in (
        (Map(str, int), lambda live: live.set({"b": 2})),
        (Map(str, int), lambda live: live.update(dict.fromkeys("abcd", 2))),
        (List(int), lambda live: live.set([5, 6])),
        (Window(int, rows=2), lambda live: live.set([5, 6])),
        (Value(str, default=""), lambda live: live.set("y")),
    ):
        live, versions = followed(variable, lambda live: None)  # type: ignore[arg-type]
        change(live)  # type: ignore[no-untyped-call]
        assert versions.delta() is None, str(variable.shape)


def test_slices_with_a_step_are_followed() -> None:
    live, versions = followed(List(int), lambda live: live.extend(range(30)))
    base = versions.base()
    live[2:20:6] = [100, 101, 102]
    live[-1:-8:-3] = [103, 104, 105]
    del live[10:25:7]
    delta = versions.delta()
    assert delta is not None
    assert merged("list(int)", [base, delta]) == list(live)


def test_a_key_that_no_stored_copy_equals_makes_a_base() -> None:
    nan = float("nan")
    for key in (nan, (1, nan)):
        live, versions = followed(Map(object, int), lambda live: live.update(dict.fromkeys("abcdef", 1)))
        live[key] = 1
        assert versions.delta() is None
        versions.follow()
        live["a"] = 2
        assert versions.delta() is None, "it may be changed at any time"


# --- logs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declared", [Map(str, int), List(int), Window(int, rows=3)], ids=lambda v: str(v.shape)
)
def test_a_variable_that_is_not_followed_has_the_code_of_live_py(declared: Variable) -> None:
    live: Any = declared.at_work(declared, UNSET, Clock())
    plain = type(live)
    enable(live)
    assert type(live) is not plain
    disable(live)
    assert type(live) is plain
    assert plain in (MapState, ListState, WindowState)


def test_a_log_never_grows_beyond_its_variable() -> None:
    live, _ = followed(Map(int, int), lambda live: live.update({n: n for n in range(100)}))
    for n in range(60):
        del live[n]
    assert log_of(live) is None
    scattered, _ = followed(List(int), lambda live: live.extend(range(5 * PIECES_MAX)))
    for n in range(PIECES_MAX):
        del scattered[4 * n]
        scattered.insert(4 * n + 2, n)
    assert log_of(scattered) is None


def test_a_change_that_is_refused_is_not_logged() -> None:
    live, versions = followed(Map(str, int), lambda live: live.update(a=1))
    with pytest.raises(StateError):
        live["b"] = "no number"
    with pytest.raises(KeyError):
        del live["c"]
    assert versions.delta() == b""


def test_a_value_that_is_no_data_is_named_with_its_variable() -> None:
    live, versions = followed(Map(str, object), lambda live: live.update(dict.fromkeys("abcdef", 1)))
    live["a"] = lambda: None
    with pytest.raises(StateError, match=r"attribute 'it'\['a'\]"):
        versions.delta()
