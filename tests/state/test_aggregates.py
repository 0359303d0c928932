"""Aggregates against plain Python: types, nulls, exactness, and independence of order and cuts."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import sys
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sampling import examples

from holdfast.errors import StateError
from holdfast.state.aggregates.aggregation import Aggregation, combine, finish, lift, partial, running

DAY = dt.date(2024, 1, 2)
NOON = dt.datetime(2024, 1, 2, 12)


def run(function: str, values: pa.Array, cut: int = 0) -> pa.Scalar:
    """The function over one key, in two batches cut at `cut`."""
    batch = pa.table({"k": pa.array(["x"] * len(values)), "v": values})
    plan = Aggregation.plan(("k",), (("out", function, "v"),), batch.schema)
    state = combine(plan, [partial(plan, batch[:cut]), partial(plan, batch[cut:])])
    return finish(plan, state).column("out")[0]


@pytest.mark.parametrize(
    ("function", "kind", "values", "result", "expected"),
    [
        ("sum", pa.int32(), [1, None, 2], pa.int64(), 3),
        ("sum", pa.int64(), [None], pa.int64(), None),
        ("sum", pa.int64(), [2**63 - 1, 5, -5], pa.int64(), 2**63 - 1),
        ("sum", pa.float32(), [1.5, 2.0], pa.float64(), 3.5),
        ("sum", pa.float64(), [math.inf, 1.0], pa.float64(), math.inf),
        ("sum", pa.float64(), [1e308, 1e308, 1.0], pa.float64(), math.inf),
        ("sum", pa.float64(), [math.inf, 1.0, -math.inf], pa.float64(), math.nan),
        ("sum", pa.float64(), [0.1] * 10, pa.float64(), 1.0),
        ("sum", pa.decimal128(9, 2), [Decimal("1.10"), None, Decimal("-2.35")], pa.decimal128(19, 2), Decimal("-1.25")),
        ("sum", pa.decimal128(35, 0), [Decimal(-1)], pa.decimal128(38, 0), Decimal(-1)),
        ("avg", pa.int64(), [2**63 - 1, 2**63 - 1, None], pa.float64(), float(2**63 - 1)),
        ("avg", pa.int64(), [-5, 2], pa.float64(), -1.5),
        ("avg", pa.float64(), [1.0, 2.0], pa.float64(), 1.5),
        ("avg", pa.decimal128(5, 1), [Decimal("-0.1"), Decimal("0.0"), Decimal("0.0")], pa.decimal128(9, 5),
         Decimal("-0.03333")),
        ("avg", pa.decimal128(5, 1), [Decimal("0.1"), Decimal("0.1"), Decimal("0.0")], pa.decimal128(9, 5),
         Decimal("0.06667")),
        ("avg", pa.decimal128(38, 36), [Decimal("1")], pa.decimal128(38, 38), "refused"),
        ("avg", pa.int8(), [None], pa.float64(), None),
        ("count", pa.string(), ["a", None, "b"], pa.int64(), 2),
        ("min", pa.string(), ["b", None, "ä", "a"], pa.string(), "a"),
        ("max", pa.string(), ["b", None, "ä", "a"], pa.string(), "ä"),
        ("max", pa.binary(), [b"a", b"\xff", b""], pa.binary(), b"\xff"),
        ("min", pa.bool_(), [True, False], pa.bool_(), False),
        ("max", pa.date32(), [DAY, None], pa.date32(), DAY),
        ("min", pa.timestamp("us", tz="UTC"), [NOON.replace(tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC"),
         NOON.replace(tzinfo=dt.UTC)),
        ("max", pa.timestamp("us"), [NOON, None], pa.timestamp("us"), NOON),
        ("min", pa.int16(), [5, -7, None], pa.int16(), -7),
        ("max", pa.float64(), [1.0, math.nan, math.inf], pa.float64(), math.nan),
        ("min", pa.float32(), [1.5, math.nan, -math.inf], pa.float32(), -math.inf),
        ("min", pa.decimal128(9, 2), [Decimal("1.00"), Decimal("-3.25")], pa.decimal128(9, 2), Decimal("-3.25")),
        ("max", pa.decimal128(30, 2), [Decimal("1.00"), None, Decimal("-3.25")], pa.decimal128(30, 2), Decimal("1.00")),
        ("min", pa.int64(), [None, None], pa.int64(), None),
    ],
)  # fmt: skip
def test_each_function_and_type(
    function: str, kind: pa.DataType, values: list[Any], result: pa.DataType, expected: Any
) -> None:
    for cut in range(len(values) + 1):
        if isinstance(expected, str) and expected == "refused":
            with pytest.raises(StateError, match="'out' left the range"):
                run(function, pa.array(values, kind), cut)
            continue
        found = run(function, pa.array(values, kind), cut)
        assert found.type == result
        assert found.as_py() == expected or (expected != expected and math.isnan(found.as_py()))


def test_every_minimum_prefers_the_negative_zero_whatever_came_first() -> None:
    for values in ([0.0, -0.0], [-0.0, 0.0]):
        assert math.copysign(1, run("min", pa.array(values)).as_py()) == -1
        assert math.copysign(1, run("max", pa.array(values)).as_py()) == 1


def test_leaving_the_range_names_the_column() -> None:
    with pytest.raises(StateError, match="'out' left the range of 64-bit integers"):
        run("sum", pa.array([2**63 - 1, 1]))
    most = Decimal(10**38 - 1)
    with pytest.raises(StateError, match="'out' left the range of decimal128"):
        run("sum", pa.array([most, Decimal(1)], pa.decimal128(38, 0)), 1)


@pytest.mark.parametrize(
    ("by", "aggregates", "message"),
    [
        (["k"], [("o", "sum", "s")], "sum over a column of type string"),
        (["k"], [("o", "sum", None)], "sum over no column"),
        (["k"], [("o", "median", "k")], "median over"),
        (["k"], [("o", "sum", "nope")], "no column 'nope'"),
        (["k"], [("k", "count", None)], "not distinct"),
        ([], [("o", "count", None)], "key is empty"),
        (["l"], [("o", "count", None)], "cannot be part of a key"),
    ],
)
def test_mistakes_are_refused_when_planning(by: list[str], aggregates: list[Any], message: str) -> None:
    schema = pa.schema({"k": pa.int64(), "s": pa.string(), "l": pa.list_(pa.int64())})
    with pytest.raises(StateError, match=message):
        Aggregation.plan(by, aggregates, schema)


def test_a_plan_travels_by_pickle_and_a_changed_type_is_refused() -> None:
    schema = pa.schema({"k": pa.large_string(), "v": pa.int64()})
    plan = Aggregation.plan(("k",), (("n", "count", None), ("s", "avg", "v")), schema)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.output_schema == pa.schema({"k": pa.string(), "n": pa.int64(), "s": pa.float64()})
    with pytest.raises(StateError, match="'v' is double, planned as int64"):
        partial(plan, pa.table({"k": ["a"], "v": [1.5]}))
    with pytest.raises(StateError, match="stored state has columns"):
        combine(plan, [pa.table({"a": [1]})])


# --- sums of doubles ------------------------------------------------------------------------------------------------

WILD = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


def pair(state: pa.Table) -> Fraction:
    return sum((Fraction(state[f"__hf_s.{part}"][0].as_py()) for part in ("sum", "low")), Fraction(0))


def exact_running_sums(values: list[float]) -> list[float]:
    return [math.fsum(values[: i + 1]) for i in range(len(values))]


@examples(150)
@given(st.lists(WILD, min_size=1, max_size=12))
@example([1e300, 1.0, -1e300])
@example([5e-324, 1e-310, -5e-324])
@example([1e16, 1.0, 1.0, -1e16])
def test_within_a_batch_double_sums_lose_nothing(values: list[float]) -> None:
    batch = pa.table({"k": [1] * len(values), "v": values})
    plan = Aggregation.plan(("k",), (("s", "sum", "v"),), batch.schema)
    output, state = running(plan, lift(plan, batch), plan.state_schema.empty_table())
    exact = exact_running_sums(values)
    assert all(abs(a - b) <= math.ulp(b) for a, b in zip(output["s"].to_pylist(), exact, strict=True))
    true = sum(map(Fraction, values))
    for table in (state, partial(plan, batch)):
        assert abs(pair(table) - true) <= abs(true) * Fraction(1, 2**100)


@pytest.mark.parametrize(
    "others", [[], [1.0], [5e-324, -1e300], [-sys.float_info.max], [sys.float_info.max] * 2]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_doubles_have_sums_like_others(others: list[float], sign: int) -> None:
    values = [sign * sys.float_info.max, *others]
    batch = pa.table({"k": [1] * len(values), "v": values})
    plan = Aggregation.plan(("k",), (("s", "sum", "v"),), batch.schema)
    try:
        exact = math.fsum(values)
    except OverflowError:
        exact = sign * math.inf
    assert finish(plan, partial(plan, batch))["s"].to_pylist() == [exact]


@examples(100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.data())
def test_double_sums_do_not_depend_on_cuts_or_order(values: list[float], data: st.DataObject) -> None:
    batch = pa.table({"k": [1] * len(values), "v": values})
    plan = Aggregation.plan(("k",), (("s", "sum", "v"),), batch.schema)
    order = data.draw(st.permutations(range(len(values))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=5)))
    shuffled = batch.take(order)
    state = plan.state_schema.empty_table()
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        state = combine(plan, [state, partial(plan, shuffled[start:end])])
    scale = sum(abs(Fraction(value)) for value in values)
    assert abs(pair(state) - sum(map(Fraction, values))) <= scale * Fraction(1, 2**98)


def test_infinities_and_nan_follow_addition_row_by_row() -> None:
    values = [1.0, math.inf, 2.0, -math.inf, 3.0]
    batch = pa.table({"k": ["a"] * 5 + ["b"] * 2, "v": [*values, 1.0, math.nan]})
    plan = Aggregation.plan(("k",), (("s", "sum", "v"),), batch.schema)
    output, state = running(plan, lift(plan, batch), plan.state_schema.empty_table())
    expected = [1.0, math.inf, math.inf, math.nan, math.nan, 1.0, math.nan]
    assert np.array_equal(output["s"].to_numpy(), expected, equal_nan=True)
    assert np.isnan(finish(plan, combine(plan, [state, state]))["s"].to_numpy()).all()


# --- decimals -------------------------------------------------------------------------------------------------------


@examples(150)
@given(st.lists(st.none() | st.integers(-(10**27), 10**27), min_size=1, max_size=12), st.integers(0, 12))
def test_decimals_are_exact(unscaled: list[int | None], cut: int) -> None:
    wide = Context(prec=60)
    values = pa.array(
        [None if v is None else wide.scaleb(Decimal(v), -3) for v in unscaled], pa.decimal128(28, 3)
    )
    known = [v for v in unscaled if v is not None]
    total, mean = run("sum", values, cut).as_py(), run("avg", values, cut).as_py()
    if not known:
        assert total is mean is None
        return
    assert total == wide.scaleb(Decimal(sum(known)), -3)
    exact = Fraction(sum(known) * 10**4, len(known))
    digits = wide.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    assert mean == wide.scaleb(digits.quantize(Decimal(1), ROUND_HALF_UP, wide), -7)
    smallest, largest = run("min", values, cut).as_py(), run("max", values, cut).as_py()
    assert (smallest, largest) == (wide.scaleb(Decimal(min(known)), -3), wide.scaleb(Decimal(max(known)), -3))
