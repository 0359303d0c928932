"""Python values as columns: what fits comes out as it went in, what does not is refused, by a rule that can be read."""

from __future__ import annotations

import datetime as dt
import enum
from collections import Counter, deque, namedtuple
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.columns.from_python import Unfit, column_of
from holdfast.state.columns.kept_casts import cast_to

LONG, DOUBLE, FLOAT, DECIMAL = pa.int64(), pa.float64(), pa.float32(), pa.decimal128(10, 2)
AT, LOCAL, DAY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()
LONGS = pa.list_(LONG)
PLACE = pa.struct([("city", pa.string()), ("zip", LONG)])
FLAT = [LONG, pa.int8(), DOUBLE, FLOAT, DECIMAL, pa.string(), pa.binary(), pa.bool_(), AT, LOCAL, DAY]

CET = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2026, 1, 1, 12)


# --- the rule, value by value ---


def fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a column holds the value as it is."""
    if value is None:
        return True
    if isinstance(value, np.generic):
        value = value.item()
    if pa.types.is_list(kind):
        return isinstance(value, list | tuple) and all(fits(each, kind.value_type) for each in value)
    if pa.types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        return isinstance(value, dict) and all(n in known and fits(v, known[n]) for n, v in value.items())
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if pa.types.is_integer(kind):
        is_whole = isinstance(value, int | float | Decimal) and value == value and abs(value) < 2**70
        return (
            is_whole and value == int(value) and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1
        )
    if pa.types.is_floating(kind):
        exact = 2**53 if kind == DOUBLE else 2**24
        return (
            abs(value) <= exact
            if isinstance(value, int)
            else isinstance(value, float)
            and (kind == DOUBLE or not np.isfinite(value) or abs(value) < 3.4e38)
        )
    if pa.types.is_decimal(kind):
        is_exact = isinstance(value, int) or (isinstance(value, Decimal) and value == round(value, 2))
        return is_exact and abs(value) < 10**8
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return isinstance(value, str) or (
            isinstance(value, bytes) and (pa.types.is_binary(kind) or is_text(value))
        )
    if kind == AT:
        return isinstance(value, dt.datetime)
    if kind == LOCAL:
        return isinstance(value, dt.datetime) and not value.utcoffset()
    is_midnight = not isinstance(value, dt.datetime) or value.time() == dt.time()
    return isinstance(value, dt.date) and is_midnight


def is_text(value: bytes) -> bool:
    try:
        return bool(value.decode()) or not value
    except UnicodeDecodeError:
        return False


def meant(value: Any, kind: pa.DataType) -> Any:
    """What comes out for a value that fits."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [meant(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: meant(value.get(field.name), field.type) for field in kind}
    if isinstance(value, str | bytes):
        text = value.encode() if isinstance(value, str) else value
        return text.decode() if pa.types.is_string(kind) else text
    if kind == FLOAT:
        return float(np.float32(value))
    if kind == AT:
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if kind == LOCAL:
        return value.replace(tzinfo=None)
    return value.date() if kind == DAY and isinstance(value, dt.datetime) else value


TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.booleans().map(np.bool_),
    st.integers(-(2**64), 2**64),
    st.integers(-200, 200),
    st.integers(-200, 200).map(np.int64),
    st.integers(-200, 200).map(float),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.floats(-10, 10).map(np.float64),
    st.decimals(-1000, 1000, places=3),
    st.integers(-200, 200).map(Decimal),
    st.text("ab ä", max_size=3),
    st.binary(max_size=3),
    st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
    TIMES,
    TIMES.map(lambda at: at.replace(tzinfo=dt.UTC)),
    TIMES.map(lambda at: at.replace(tzinfo=CET)),
    st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)).map(lambda d: dt.datetime(d.year, d.month, d.day)),
)
LISTS = st.lists(SCALARS, max_size=3)
STRUCTS = st.dictionaries(st.sampled_from(["city", "zip", "ctiy"]), SCALARS, max_size=2)


def likely(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values for a column of the type, most of which fit."""
    if kind == LONGS:
        return st.one_of(LISTS, st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=4))
    if kind == PLACE:
        right = st.fixed_dictionaries(
            {"city": st.text("ab", max_size=2)}, optional={"zip": st.integers(0, 9)}
        )
        return st.one_of(STRUCTS, right, st.none())
    return st.one_of(SCALARS, SCALARS.filter(lambda value: fits(value, kind)))


@given(st.data(), st.sampled_from([*FLAT, LONGS, PLACE]))
def test_a_column_holds_its_values_or_names_the_first_that_it_cannot(data: Any, kind: pa.DataType) -> None:
    values = data.draw(st.lists(likely(kind), max_size=6))
    bad = [row for row, value in enumerate(values) if not fits(value, kind)]
    if bad:
        with pytest.raises(Unfit, match=r"column 'c") as caught:
            column_of(values, pa.field("c", kind))
        assert caught.value.row in bad
        return
    found = column_of(values, pa.field("c", kind))
    found.validate(full=True)
    assert found.type == kind
    for value, back in zip(values, found.to_pylist(), strict=True):
        wanted = meant(value, kind)
        assert back == wanted or (back != back and wanted != wanted), (value, back)


# --- what people give ---


class Level(enum.IntEnum):
    HIGH = 3


class Colour(enum.StrEnum):
    RED = "red"


Place = namedtuple("Place", "zip city")


@pytest.mark.parametrize(
    ("value", "kind", "back"),
    [
        (2.0, LONG, 2),
        (np.int32(5), LONG, 5),
        (np.int64(5), DECIMAL, Decimal("5.00")),
        (Decimal("2.00"), LONG, 2),
        (Level.HIGH, LONG, 3),
        (pa.scalar(7), pa.int32(), 7),
        (7, DOUBLE, 7.0),
        (np.float32(0.5), DOUBLE, 0.5),
        (Colour.RED, pa.string(), "red"),
        (np.str_("a"), pa.string(), "a"),
        (pd.Timestamp("2026-01-01 12:00"), LOCAL, NOON),
        (np.datetime64("2026-01-01T12:00"), AT, NOON.replace(tzinfo=dt.UTC)),
        (dt.datetime(2026, 1, 1), DAY, dt.date(2026, 1, 1)),
        (np.datetime64("2026-01-01"), DAY, dt.date(2026, 1, 1)),
        (np.array([1, 2]), LONGS, [1, 2]),
        (np.array([1.0, 2.0]), LONGS, [1, 2]),
        (pd.Series([1, 2]), LONGS, [1, 2]),
        (deque([1]), LONGS, [1]),
        ({1}, LONGS, [1]),
        (np.array([[1], [2]]), pa.list_(LONGS), [[1], [2]]),
        (Place(9, "x"), PLACE, {"city": "x", "zip": 9}),
        (("x", 9), PLACE, {"city": "x", "zip": 9}),
        (Counter("aab"), pa.map_(pa.string(), LONG), [("a", 2), ("b", 1)]),
        ([("a", 2)], pa.map_(pa.string(), LONG), [("a", 2)]),
        ([[1, 2], None], pa.list_(pa.list_(LONG, 2)), [[1, 2], None]),
        (
            pd.Timestamp("2026-01-01 00:00:00.000000001"),
            pa.timestamp("ns"),
            pd.Timestamp("2026-01-01 00:00:00.000000001"),
        ),
    ],
    ids=str,
)
def test_what_means_the_same_fits(value: Any, kind: pa.DataType, back: Any) -> None:
    assert column_of([None, value], pa.field("c", kind)).to_pylist() == [None, back]


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (1.5, LONG, "column 'c' of type int64 cannot hold 1.5: it is not whole"),
        (np.array([1.5]), LONGS, r"column 'c\[\]' of type int64 cannot hold 1.5: it is not whole"),
        (UUID(int=1), LONG, "a UUID is no number"),
        (np.True_, LONG, "a truth value is no number"),
        (True, DOUBLE, "a truth value is no number"),
        (1e300, FLOAT, "it is too large"),
        (0.5, DECIMAL, "a float is not exact there"),
        (1_790_000_000, AT, "an int is no moment; give datetime.fromtimestamp"),
        (dt.timedelta(1), AT, "a timedelta is no moment"),
        (3, pa.duration("us"), "an int is no span of time"),
        (7, DAY, "an int is no date"),
        (NOON, DAY, r"its time of day would be lost; give value.date\(\)"),
        (NOON.replace(tzinfo=CET), LOCAL, "its zone would be lost"),
        (NOON.replace(microsecond=5), pa.timestamp("ms"), "would lose data"),
        (pd.Timestamp("2026-01-01 00:00:00.000000001"), AT, "its nanoseconds would be lost"),
        (pd.NaT, DAY, "it is no time; give None"),
        (np.datetime64("NaT"), AT, "it is no time; give None"),
        ("abc", pa.list_(pa.string()), "a str is no list"),
        (b"abc", LONGS, "a bytes is no list"),
        ({"city": "x", "zpi": 9}, PLACE, "it has no field 'zpi'. Did you mean 'zip'?"),
        ({"zip": 9.5}, PLACE, "column 'c.zip' of type int64 cannot hold 9.5"),
        (("x",), PLACE, "give a dict with the fields city, zip"),
        ({"a": 1.5}, pa.map_(pa.string(), LONG), "column 'c.value' of type int64 cannot hold 1.5"),
        ([("a", 1), ("a", 2)], pa.map_(pa.string(), LONG), "pairs with different keys"),
        ([1, 2, 3], pa.list_(LONG, 2), "cannot hold"),
        (NOON, pa.date64(), "it would be changed"),
    ],
    ids=str,
)
def test_what_would_come_out_as_something_else_is_refused(value: Any, kind: pa.DataType, told: str) -> None:
    with pytest.raises(Unfit, match=told) as caught:
        column_of([None, None, value], pa.field("c", kind))
    assert caught.value.row == 2


def test_a_null_is_refused_where_none_may_be() -> None:
    with pytest.raises(Unfit, match="column 'c' of type int64 cannot hold None: it is declared NOT NULL"):
        column_of([1, None], pa.field("c", LONG, nullable=False))
    inner = pa.struct([pa.field("a", LONG, nullable=False)])
    assert column_of([None, {"a": 1}], pa.field("c", inner)).to_pylist() == [None, {"a": 1}]
    with pytest.raises(Unfit, match=r"'c\.a' .* NOT NULL"):
        column_of([None, {"a": 1}, {}], pa.field("c", inner))


# --- tables ---


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        (pa.array([None, 5]), AT, "cannot hold 5: a column of type int64 is none of times"),
        (pa.array([NOON]), LONG, "a time is no number"),
        (pa.array([dt.datetime(2026, 1, 1), NOON]), DAY, "its time of day would be lost"),
        (pa.array([1.0, 1e300]), FLOAT, r"cannot hold 1e\+300: it is too large"),
        (pa.array([1.25, 1.555]), DECIMAL, "cannot hold 1.555: it would be changed"),
        (pa.array([1, 5]), pa.bool_(), "cannot hold 5: it would be changed"),
        (pa.array([1.5]), LONG, "truncated"),
        (pa.array([{"city": "x", "zpi": 9}]), PLACE, "it has no field 'zpi'. Did you mean 'zip'?"),
        (
            pa.array([{"zip": NOON}]),
            PLACE,
            r"column 'c\.zip' of type int64 cannot hold .*: a time is no number",
        ),
        (pa.array([[5]]), pa.list_(AT), r"column 'c\[\]' .* cannot hold 5"),
        (
            pa.array([[("a", 5)]], pa.map_(pa.string(), LONG)),
            pa.map_(pa.string(), AT),
            "'c.value' .* cannot hold 5",
        ),
    ],
    ids=str,
)
def test_a_table_whose_values_would_change_is_refused(given: Any, kind: pa.DataType, told: str) -> None:
    with pytest.raises(Unfit, match=told):
        cast_to(pa.table({"c": given}), pa.schema([("c", kind)]))


@pytest.mark.parametrize(
    ("given", "kind", "back"),
    [
        (pa.array([2.0]), LONG, 2),
        (pa.array([5]), DOUBLE, 5.0),
        (pa.array([None, None], LONG), AT, None),
        (pa.array(["a"]).dictionary_encode(), pa.string(), "a"),
        (pa.array([dt.datetime(2026, 1, 1)]), DAY, dt.date(2026, 1, 1)),
        (pa.array([dt.date(2026, 1, 1)]), LOCAL, dt.datetime(2026, 1, 1)),
        (pa.array([1.25]), DECIMAL, Decimal("1.25")),
        (pa.array([float("inf")]), FLOAT, float("inf")),
        (pa.array([{"zip": 9}]), PLACE, {"city": None, "zip": 9}),
        (pa.array([[5]], pa.list_(pa.int8())), LONGS, [5]),
    ],
    ids=str,
)
def test_a_table_whose_values_stay_is_cast(given: Any, kind: pa.DataType, back: Any) -> None:
    found = cast_to(pa.table({"c": given}), pa.schema([("c", kind)]))
    assert found.column("c").type == kind
    assert found.column("c").to_pylist()[0] == back
