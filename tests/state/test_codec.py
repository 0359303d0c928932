"""Any supported value comes back from its bytes with its exact type; anything else is refused by name."""

from __future__ import annotations

import datetime as dt
import enum
import math
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.errors import DamagedError, StateError
from holdfast.state.values import user_classes
from holdfast.state.values.codec import MAX_DEPTH, check_round_trip, decode, encode, encode_attributes
from holdfast.state.values.exact_comparison import difference
from holdfast.state.values.user_classes import register_dataclass, register_enum


@register_dataclass(name="test.order")
@dataclass
class Order:
    number: int
    lines: list[Any] = field(default_factory=list)


@register_dataclass(name="test.point")
@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = 0


@register_enum(name="test.colour")
class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


class Unknown(enum.Enum):
    A = 1


def sampled(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, len(values) - 1).map(lambda index: values[index])


ZONES = st.sampled_from(
    [
        None,
        dt.UTC,
        dt.timezone(dt.timedelta(hours=2, seconds=1), "X"),
        ZoneInfo("Europe/Berlin"),
        ZoneInfo("UTC"),
    ]
)
HASHABLE_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.binary(max_size=5),
    st.complex_numbers(),
    st.decimals(allow_nan=False) | st.just(Decimal("NaN")),
    st.fractions(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.builds(lambda t, z, f: t.replace(tzinfo=z, fold=f), st.datetimes(), ZONES, st.sampled_from([0, 1])),
    st.builds(lambda t, z: t.replace(tzinfo=z), st.times(), ZONES),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
    sampled([Colour.RED, Colour.GREEN, *(np.dtype(c).type(3) for c in "?bBhHiIlLefdgFD")]),
    st.sampled_from(
        [np.str_("a\x00"), np.bytes_(b"a\x00"), np.datetime64("2020-01-01"), np.timedelta64("NaT", "us")]
    ),
)
ARRAYS = sampled(
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1.5, math.nan, -0.0], dtype=">f4"),
        np.array(["ab", "c"]),
        np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8", (2,))]),
        np.array("2020-01-01T00:00", dtype="M8[us]"),
        np.zeros((0, 3)),
        np.arange(10)[::2],
        pa.table({"a": [1, None], "b": [math.nan, 2.0]}).replace_schema_metadata({"k": "v"}),
        pa.record_batch({"a": ["x", None]}),
        pa.array([[1], None]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.chunked_array([[1], [2, 3]]),
        pa.scalar(1.5),
        pa.scalar(None, pa.string()),
        pa.schema([pa.field("a", pa.int32(), nullable=False)]),
    ]
)
KEYS = st.recursive(
    HASHABLE_LEAVES, lambda s: st.lists(s, max_size=3).map(tuple) | st.frozensets(s, max_size=3)
)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(children, max_size=4)
    dicts = st.dictionaries(KEYS, children, max_size=4)
    return st.one_of(
        lists,
        dicts,
        lists.map(tuple),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
        st.builds(deque, lists, st.none() | st.integers(0, 3)),
        dicts.map(OrderedDict),
        st.dictionaries(KEYS, st.integers(), max_size=4).map(Counter),
        st.builds(
            defaultdict,
            st.sampled_from([None, int, list, dict, set, float, str, tuple, Counter, deque]),
            dicts,
        ),
        st.builds(Order, st.integers(), lists),
        st.builds(Point, children, children),
    )


VALUES = st.recursive(
    HASHABLE_LEAVES | ARRAYS | st.binary(max_size=5).map(bytearray), containers, max_leaves=12
)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@examples(400)
@given(VALUES)
def test_every_value_comes_back_with_its_exact_types(value: Any) -> None:
    data = check_round_trip(value)
    assert encode(decode(data)) == data


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({1}, {True}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
     (deque([1]), deque([1], 3)), (Decimal("1.0"), Decimal("1.00")), (np.int32(1), np.int64(1)),
     (defaultdict(int), defaultdict(list)), (Counter("a"), {"a": 1}),
     (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))),
     (np.arange(4).reshape(2, 2), np.asfortranarray(np.arange(4).reshape(2, 2))),
     (pa.array([1], pa.int32()), pa.array([1], pa.int64()))],
)  # fmt: skip
def test_the_comparison_and_the_bytes_tell_near_misses_apart(left: Any, right: Any) -> None:
    assert difference(left, right, encode) is not None
    assert encode(left) != encode(right)


def test_special_decimals_and_not_a_number_survive() -> None:
    for text in ("NaN", "sNaN123", "-Infinity", "-0E+5", "1E+999999", "0.00000000000000000000000000000001"):
        assert decode(encode(Decimal(text))).as_tuple() == Decimal(text).as_tuple()
    nan = float("nan")
    assert len(decode(encode({(nan, 1): 1, (float("nan"), 1): 2}))) == 2


def test_fold_is_kept() -> None:
    late = dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert decode(encode(late)).fold == 1
    assert decode(encode(late)).utcoffset() == late.utcoffset()


# --- the format -----------------------------------------------------------------------------------------------------

GOLDEN: list[tuple[Any, str]] = [
    (None, "01c0"),
    ({"a": [1, True, 1.5], 2: b"x"}, "0182a1619301c3cb3ff800000000000002c40178"),
    (2**70, "01c70901400000000000000000"),
    ((1, "a"), "01d6049201a161"),
    ({3, 1}, "01c70305920103"),
    (deque([1], 2), "01d60792029101"),
    (Decimal("1.50"), "01c7051aa4312e3530"),
    (dt.datetime(2020, 1, 2, 3, 4, 5, 6), "01c70d149397cd07e401020304050600c0"),
    (UUID(int=1), "01d81c00000000000000000000000000000001"),
    (np.int16(7), "01c7092892a33c6932c4020700"),
    (Point(1, None), "01c7130c92aa746573742e706f696e7482a17801a179c0"),
    (Colour.RED, "01c7110d92ab746573742e636f6c6f7572a3524544"),
]


@pytest.mark.parametrize(("value", "data"), GOLDEN, ids=lambda v: str(v)[:20])
@pytest.mark.fault("U01")
def test_the_format_is_stable(value: Any, data: str) -> None:
    assert encode(value).hex() == data
    assert difference(decode(bytes.fromhex(data)), value, encode) is None


# --- refusals -------------------------------------------------------------------------------------------------------


class MyDict(dict[str, int]):
    pass


REFUSED: list[tuple[Any, str]] = [
    ({"x": threading.Lock()}, r"state\['x'\] holds a threading\.Lock, which is not data"),
    ([1, (2, lambda: 0)], r"state\[1\]\[1\] holds a function, which is not data"),
    (MyDict(), "MyDict, a subclass of dict"),
    (Unknown.A, "Unknown, which is not data"),
    (defaultdict(lambda: 0), "defaultdict whose factory"),
    (np.array([object()]), "plain data"),
    (np.ma.masked_array([1]), "a subclass of ndarray"),
    (np.longlong(1), "use that type"),
    (Order(1, [int]), r"state\.lines\[0\] holds a type"),
    ({object()}, r"state \(an element\) holds a object"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=lambda v: str(v)[:20])
def test_what_is_not_data_is_refused_by_its_place(value: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        encode(value)


def test_attributes_are_named_with_a_cure() -> None:
    with pytest.raises(
        StateError, match=r"attribute 'handlers'\['x'\] holds a threading\.Lock.*'_'.*open\(\)"
    ):
        encode_attributes({"n": 1, "handlers": {"x": threading.Lock()}})


def test_cycles_and_towers_are_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(StateError, match="contains itself"):
        encode(loop)
    tower: Any = 1
    for _ in range(MAX_DEPTH):
        tower = (tower,)
    assert decode(encode(tower)) == tower
    with pytest.raises(StateError, match="nested deeper"):
        encode((tower,))


def test_one_object_in_two_places_is_no_cycle() -> None:
    shared = [1]
    assert decode(encode([shared, shared])) == [[1], [1]]


# --- dataclasses over time ------------------------------------------------------------------------------------------


def evolve(monkeypatch: pytest.MonkeyPatch, cls: type) -> None:
    monkeypatch.setitem(user_classes._classes, "test.order", cls)


def test_a_new_field_takes_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Order(1, [2]))
    evolve(monkeypatch, make_dataclass("Order", [("number", int), ("lines", list), ("note", str, "none")]))
    restored = decode(data)
    assert (restored.number, restored.lines, restored.note) == (1, [2], "none")


def test_a_lost_field_a_new_field_without_default_and_a_lost_class_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode(Order(1, [2]))
    evolve(monkeypatch, make_dataclass("Order", [("number", int)]))
    with pytest.raises(StateError, match="'lines' that the class no longer has"):
        decode(data)
    evolve(monkeypatch, make_dataclass("Order", [("number", int), ("lines", list), ("note", str)]))
    with pytest.raises(StateError, match="no field 'note'"):
        decode(data)
    monkeypatch.delitem(user_classes._classes, "test.order")
    with pytest.raises(StateError, match=r"'test\.order'"):
        decode(data)


def test_two_classes_cannot_share_a_name() -> None:
    with pytest.raises(StateError, match="already belongs"):
        register_dataclass(make_dataclass("Other", []), name="test.order")
    with pytest.raises(StateError, match="not a dataclass"):
        register_dataclass(int)


# --- hostile bytes --------------------------------------------------------------------------------------------------

SAMPLES: list[Any] = [value for value, _ in GOLDEN] + [
    {(1, "a"): [deque([Counter("ab")], 3), defaultdict(list, {1: [2]})]},
    np.arange(6).reshape(2, 3),
    np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")]),
    pa.table({"a": ["x", None], "b": [[1], [2, 3]]}),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.schema({"a": pa.int32()}),
    [Fraction(1, 3), 1j, range(3), Order(1, [Point(1, 2)]), dt.datetime.now(ZoneInfo("Europe/Berlin"))],
]


@pytest.mark.fault("SR01", "SR04")
def test_damaged_bytes_give_clean_errors() -> None:
    rng = random.Random(7)
    for _ in range(6000):
        data = bytearray(encode(rng.choice(SAMPLES)))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            action = rng.random()
            if action < 0.6:
                data[at] = rng.randrange(256)
            elif action < 0.8:
                del data[at : at + rng.randint(1, 4)]
            else:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            if not data:
                break
        try:
            decode(bytes(data))
        except (DamagedError, StateError):
            pass


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\xc0",
        b"\x01",
        b"\x01\xdd\xff\xff\xff\xff",
        b"\x01" + b"\xdd\x00\xff\xff\xff" * 200 + b"\xc0",
        b"\x01" + b"\x91" * 5000 + b"\xc0",
        b"\x01\xc0\xc0",
        b"\x01\xc7\x00\x63",
        b"\x01\x81\x90\xc0",
    ],
)
@pytest.mark.fault("SR04", "U07")
def test_lies_about_lengths_depth_and_types_are_found(data: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(data)
