"""Declared variables: what they hold, what they refuse, how large they are, and that hosted operators keep them."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import OrderedDict
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import StateError, TopologyError
from holdfast.language.hosted import maker
from holdfast.state.values import codec
from holdfast.state.variables.declarations import declared, lives_of, payloads_of
from holdfast.state.variables.instance_state import check_state, initial_state, restore, take_state
from holdfast.state.variables.state_size import state_size


class Many:
    count = hf.Value(int, default=0)
    name = hf.Value(str)
    tags = hf.Value(list, default=[])
    seen = hf.Map(str, int)
    recent = hf.List(float, sample=8)
    window = hf.Window(int, rows=3)


def test_variables_are_used_like_attributes() -> None:
    many = Many()
    many.count += 2
    many.seen["a"] = 1
    many.seen.update(b=2)
    many.recent.extend([1.0, 2.0])
    many.recent += [3.0]
    for n in range(5):
        many.window.append(n)
    assert (many.count, many.name, dict(many.seen)) == (2, None, {"a": 1, "b": 2})
    assert many.recent == [1.0, 2.0, 3.0]
    assert (many.window == [2, 3, 4], len(many.window), many.window[-1], many.window[1:]) == (
        True,
        3,
        4,
        [3, 4],
    )
    many.seen = {"z": 9}  # a dict is taken over
    many.recent[0:2] = [7.0]
    assert (dict(many.seen), list(many.recent)) == ({"z": 9}, [7.0, 3.0])


def test_instances_do_not_share_what_can_be_changed_in_place() -> None:
    one, two = Many(), Many()
    one.tags.append("x")
    assert (one.tags, two.tags, Many().tags) == (["x"], [], [])


def test_only_what_is_not_as_declared_is_stored() -> None:
    many = Many()
    assert payloads_of(many) == {}
    many.count = 5
    many.count = 0
    many.seen["a"] = 1
    del many.seen["a"]
    assert payloads_of(many) == {}
    many.tags.append(1)
    assert payloads_of(many) == {"tags": [1]}


class Zero:
    number = hf.Value(float, default=0.0)


def test_a_negative_zero_is_not_zero() -> None:
    zero = Zero()
    zero.number = -0.0
    assert str(payloads_of(zero)) == "{'number': -0.0}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: setattr(m, "count", 1.5), r"'count' of Many holds int, not float 1\.5\. Convert it: int"),
        (lambda m: setattr(m, "count", True), "'count' of Many holds int, not bool True"),
        (lambda m: setattr(m, "count", None), "None is held only by a Value whose default is None"),
        (lambda m: m.seen.update({1: 1}), "'seen' of Many holds str keys, not int 1"),
        (lambda m: m.seen.update(a="x"), "'seen' of Many holds int values, not str 'x'"),
        (lambda m: m.recent.append(1), "'recent' of Many holds float elements, not int 1"),
        (lambda m: m.recent.insert(0, "x" * 99), "not str 'xxx.*[.]{3}[.]"),
        (lambda m: m.window.append(None), "'window' of Many holds int elements, not NoneType"),
    ],
)
def test_other_types_are_refused(change: Any, says: str) -> None:
    with pytest.raises(StateError, match=says):
        change(Many())


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: hf.Value(int, default="0"), "the default '0' of a Value is of type str, not int"),
        (lambda: hf.Value(object()), "cannot be the type of a variable"),  # type: ignore[call-overload]
        (lambda: hf.List(Many), "cannot be the type of a variable"),
        (lambda: hf.Window(int), "either rows= or seconds="),
        (lambda: hf.Window(int, rows=3, seconds=4), "either rows= or seconds="),
        (lambda: hf.Window(int, rows=0), "rows=0 is no number"),
        (lambda: hf.Map(str, int, ttl=0), "ttl=0 is no duration"),
        (lambda: hf.List(int, sample=0), "sample=0 is no number"),
        (lambda: hf.List(int, element_size=-1), "element_size=-1 is no number"),
        (lambda: declared(type("Hidden", (), {"_x": hf.Value(int)})), "begins with '_'"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(declare: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        declare()


def test_a_class_inherits_declarations_and_may_replace_them() -> None:
    class More(Many):
        extra = hf.Value(bytes)
        name = None

    assert list(declared(More)) == ["count", "tags", "seen", "recent", "window", "extra"]


# --- size ---


def encoded_size(instance: Any) -> int:
    return len(codec.encode(payloads_of(instance)))


class Fixed:
    flag = hf.Value(bool, default=False)
    at = hf.Value(dt.datetime)
    number = hf.Value(int, default=0)
    text = hf.Value(str)
    floats = hf.List(float)
    ids = hf.Map(uuid.UUID, bool)
    window = hf.Window(float, rows=50)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_the_size_of_values_and_of_elements_of_fixed_size_is_exact(count: int) -> None:
    fixed = Fixed()
    fixed.flag, fixed.text, fixed.number = bool(count), "x" * count, count**3
    fixed.floats = [float(n) for n in range(count)]
    for n in range(min(count, 2000)):
        fixed.ids[uuid.UUID(int=n)] = True
        fixed.window.append(0.5)
    fixed.at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert state_size(fixed) == encoded_size(fixed)


class Sampled:
    words = hf.List(str, sample=8)
    totals = hf.Map(str, int, sample=8)
    window = hf.Window(str, rows=700)


@pytest.mark.parametrize("count", [1, 5, 300, 5000])
def test_other_elements_are_sampled(count: int) -> None:
    sampled = Sampled()
    for n in range(count):
        sampled.words.append("w" * (20 + n % 3))
        sampled.totals[f"key {n:6}"] = n
        sampled.window.append("abcdef")
    assert state_size(sampled) == pytest.approx(encoded_size(sampled), rel=0.05)


class Hinted:
    big = hf.List(bytes, element_size=1024)
    index = hf.Value(object, length=lambda value: value["count"], element_size=10)
    fixed = hf.Map(str, int, length=1000, element_size=3)


def test_hints_take_the_place_of_samples() -> None:
    hinted = Hinted()
    hinted.big.append(b"")
    hinted.big.append(b"")
    hinted.index = {"count": 7}
    hinted.fixed["a"] = 1
    names = sum(1 + len(name) for name in ("big", "index", "fixed"))
    assert state_size(hinted) == 2 + names + 2 * 1024 + 7 * 10 + 1000 * 3


# --- operators hosted in the driver ---


class Colour(enum.Enum):
    RED = 1


hf.register_enum(Colour)


class Hosted(hf.Operator):
    count = hf.Value(int, default=0)
    colours = hf.Map(str, Colour)
    kept = hf.Value(OrderedDict)

    def __init__(self) -> None:
        self.plain = 1
        self._cache: Any = None

    def process(self, row: Any, port: int) -> None:
        self.count += 1
        self.colours[row] = Colour.RED


def test_a_hosted_operator_keeps_what_it_declares_beside_its_attributes() -> None:
    operator = Hosted()
    pristine = initial_state(operator)
    operator.process("a", 0)
    operator.plain = 2
    check_state(operator)
    data = take_state(operator)
    operator.process("b", 0)
    operator.kept = OrderedDict(a=1)
    restore(operator, data, pristine)
    assert (operator.count, dict(operator.colours), operator.kept, operator.plain) == (
        1,
        {"a": Colour.RED},
        None,
        2,
    )
    restore(operator, None, pristine)
    assert (operator.count, dict(operator.colours), operator.plain) == (0, {}, 1)
    assert operator.state_size() == len(take_state(operator))


def test_a_hosted_instance_is_copied_with_its_variables() -> None:
    mine = Hosted()
    mine.count = 5
    make, _ = maker(mine)
    mine.count = 6
    one, two = make(), make()
    one.count += 1
    assert (one.count, two.count) == (6, 5)


def test_hosted_operators_have_no_lifetimes() -> None:
    class Timed:
        seen = hf.Map(str, int, ttl=5)

        def process(self, row: Any, port: int) -> None: ...

    with pytest.raises(TopologyError, match="declares a lifetime for 'seen', but an operator hosted"):
        maker(Timed)


def test_variables_are_made_when_they_are_first_used() -> None:
    many = Many()
    many.count = 1
    assert list(lives_of(many)) == ["count"]
