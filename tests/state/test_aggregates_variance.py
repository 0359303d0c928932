"""Variance and standard deviation against exact fractions."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sampling import examples

from holdfast.state.aggregates.aggregation import combine, finish, lift, partial, running
from tests.state.splitting import KEYS, Rows, by_key, merged, of_keys, plan_of, table_of

TOLERANCE = 2.0**-50

NEAR_ZERO = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-100)
FAR_AWAY = st.integers(0, 1000).map(lambda n: 1e15 + n / 8)
HARDLY_APART = st.integers(0, 5).map(lambda n: 0.1 + n * math.ulp(0.1))
ANY_SIZE = st.floats(-1e140, 1e140).filter(lambda x: x == 0 or abs(x) > 1e-100)
LISTS = st.sampled_from([NEAR_ZERO, FAR_AWAY, HARDLY_APART, ANY_SIZE]).flatmap(
    lambda values: st.lists(st.tuples(KEYS, st.none() | values), max_size=25)
)


def exact(values: list[Any]) -> Fraction | None:
    known = [Fraction(value) for value in values if value is not None]
    if len(known) < 2:
        return None
    mean = sum(known) / len(known)
    return sum((value - mean) ** 2 for value in known) / (len(known) - 1)


def close(found: float | None, true: Fraction | None) -> bool:
    if found is None or true is None:
        return found is None and true is None
    return abs(Fraction(found) - true) <= true * Fraction(TOLERANCE)


@examples(150)
@given(LISTS, st.data())
def test_the_variance_is_right_to_the_last_digits_for_all_cuts_and_orders(
    rows: Rows, data: st.DataObject
) -> None:
    plan = plan_of(["variance", "stddev"], pa.float64())
    found = by_key(plan, merged(plan, table_of(rows, pa.float64()), data))
    assert found.keys() == of_keys(rows).keys()
    for key, values in of_keys(rows).items():
        variance, deviation = found[key]
        assert close(variance, exact(values)), (values, variance)
        assert deviation == (None if variance is None else math.sqrt(variance))


@examples(100)
@given(LISTS, st.integers(0, 25))
@example([("a", 1e15), ("a", 1e15 + 1), ("a", None), ("a", -3.0)], 2)
def test_running_values_are_those_of_the_rows_so_far(rows: Rows, cut: int) -> None:
    plan, table = plan_of("variance", pa.float64()), table_of(rows, pa.float64())
    state = partial(plan, table[:cut])
    output, changed = running(plan, lift(plan, table[cut:]), state)
    so_far = of_keys(rows[:cut])
    for (key, value), found in zip(rows[cut:], output["variance"].to_pylist(), strict=True):
        so_far.setdefault(key, []).append(value)
        assert close(found, exact(so_far[key]))
    for key, found in by_key(plan, changed).items():
        assert close(found, exact(so_far[key]))


def test_an_outlier_in_front_of_many_values_costs_no_digits() -> None:
    rng = np.random.default_rng(5)
    values = [1e7 / 3, *(rng.integers(-1000, 1000, 20_000) / 8 + 0.1).tolist()]
    plan, true = plan_of("variance", pa.float64()), exact(values)
    table = pa.table({"k": ["a"] * len(values), "v": values})
    assert close(by_key(plan, partial(plan, table))["a"], true)
    output, _ = running(plan, lift(plan, table), plan.state_schema.empty_table())
    assert close(output["variance"][-1].as_py(), true)
    one_by_one = [partial(plan, table[row : row + 1]) for row in range(500)]
    state = one_by_one[0]
    for piece in one_by_one[1:]:
        state = combine(plan, [state, piece])
    assert close(by_key(plan, state)["a"], exact(values[:500]))


@examples(50)
@given(st.floats(-1e140, 1e140), st.integers(2, 40), st.data())
def test_equal_values_have_no_variance_at_all(value: float, count: int, data: st.DataObject) -> None:
    plan = plan_of("stddev", pa.float64())
    assert by_key(plan, merged(plan, table_of([("a", value)] * count, pa.float64()), data)) == {"a": 0.0}


@examples(100)
@given(
    st.lists(st.none() | st.sampled_from([math.inf, -math.inf, math.nan, 1.0, -2.5]), max_size=6), st.data()
)
def test_what_is_not_finite_gives_nan_unless_it_is_alone(
    values: list[float | None], data: st.DataObject
) -> None:
    plan = plan_of("variance", pa.float64())
    found = by_key(plan, merged(plan, table_of([("a", v) for v in values], pa.float64()), data)).get("a")
    known = [value for value in values if value is not None]
    if len(known) < 2:
        assert found is None
    elif all(map(math.isfinite, known)):
        assert close(found, exact(known))
    else:
        assert found is not None
        assert math.isnan(found)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int8(), [1, 2, None, 4], 7 / 3),
        (pa.int64(), [2**62, 2**62 + 2048], 2048.0**2 / 2),
        (pa.float32(), [0.5, 1.5], 0.5),
        (pa.decimal128(12, 2), [Decimal("1.25"), Decimal("2.25"), None], 0.5),
        (pa.decimal128(38, 0), [Decimal(10) ** 30, -(Decimal(10) ** 30)], 2e60),
        (pa.int64(), [7], None),
        (pa.int64(), [None], None),
        (pa.float64(), [1e200, -1e200], math.nan),
    ],
)
def test_numbers_of_every_type_are_taken_as_doubles(
    kind: pa.DataType, values: list[Any], expected: float | None
) -> None:
    plan = plan_of("variance", kind)
    output = finish(plan, partial(plan, table_of([("a", v) for v in values], kind)))
    assert output.schema.field("variance").type == pa.float64()
    (found,) = output["variance"].to_pylist()
    if expected is None or math.isnan(expected):
        assert (found is None) == (expected is None)
        assert found is None or math.isnan(found)
    else:
        assert found == pytest.approx(expected, rel=TOLERANCE)
