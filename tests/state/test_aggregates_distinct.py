"""Different values, counts of values, and quantiles against sorted lists."""

from __future__ import annotations

import datetime as dt
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

from holdfast.errors import StateError
from holdfast.state.aggregates import quantiles
from holdfast.state.aggregates.aggregation import combine, partial
from holdfast.state.aggregates.function_names import FUNCTIONS, family, is_function, quantile_name, share_of
from tests.state.splitting import KEYS, Rows, by_key, merged, of_keys, plan_of, same, table_of

KINDS = {
    pa.int64(): st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5]),
    pa.float32(): st.sampled_from([0.0, -0.0, math.nan, 0.5]),
    pa.string(): st.text("aäß\U0001f600", max_size=2),
    pa.binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
    pa.decimal128(9, 2): st.decimals(-2, 2, places=2),
    pa.decimal128(38, 2): st.decimals(-2, 2, places=2),
    pa.date32(): st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 5)),
    pa.timestamp("us"): st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.DataType, Rows]:
    kind = draw(st.sampled_from(list(KINDS)))
    return kind, draw(st.lists(st.tuples(KEYS, st.none() | KINDS[kind]), max_size=20))


def different(values: list[Any]) -> list[Any]:
    """Ascending; NaN last, and only one of it; one zero. Text by its bytes."""
    numbers = [value for value in values if value is not None]
    nans = [value for value in numbers if isinstance(value, float) and math.isnan(value)]
    plain = {value + 0.0 if isinstance(value, float) else value for value in numbers if value == value}
    return sorted(plain, key=lambda v: v.encode() if isinstance(v, str) else v) + nans[:1]


@examples(200)
@given(cases(), st.data())
def test_sets_do_not_depend_on_cuts_or_order(case: tuple[pa.DataType, Rows], data: st.DataObject) -> None:
    kind, rows = case
    plan = plan_of(["count", "count_distinct", "collect_set"], kind)
    state = merged(plan, table_of(rows, kind), data)
    found = by_key(plan, state)
    assert found.keys() == of_keys(rows).keys()
    for key, values in of_keys(rows).items():
        count, number, members = found[key]
        assert count == sum(value is not None for value in values)
        assert same(members, different(values))
        assert number == len(members)


def test_types_and_what_cannot_be_told_apart() -> None:
    plan = plan_of(["count_distinct", "collect_set"], pa.float32())
    assert plan.output_schema.types[1:] == [pa.int64(), pa.list_(pa.field("element", pa.float32()))]
    with pytest.raises(StateError, match="collect_set over a column of type list"):
        plan_of("collect_set", pa.list_(pa.int64()))


def test_lists_that_do_not_fit_into_a_column_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("count_distinct", pa.int64())
    table = table_of([("a", n) for n in range(6)], pa.int64())
    monkeypatch.setattr("holdfast.state.columns.arrays._MOST_ELEMENTS", 5)
    with pytest.raises(StateError, match="6 elements together do not fit"):
        partial(plan, table)


# --- quantiles ------------------------------------------------------------------------------------------------------

SHARES = st.sampled_from([0.0, 0.01, 0.07, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]) | st.floats(0, 1)
NUMBERS = st.integers(-5, 5).map(float) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
CLOSE = st.integers(0, 12).map(lambda n: 1000 + n / 8)
"""Different values, one bucket."""
SIZES = st.floats(-1e300, 1e300).filter(lambda x: x == 0 or abs(x) > 1e-300)


def at_rank(values: list[Any], share: float) -> float | None:
    """The value at rank ⌈share·n⌉, the share as it is written in decimals."""
    known = sorted(
        (float(v) + 0.0 for v in values if v is not None), key=lambda v: (math.isnan(v), math.isnan(v) or v)
    )
    rank = math.ceil(Fraction(Decimal(repr(share))) * len(known))
    return known[max(rank, 1) - 1] if known else None


@examples(150)
@given(st.lists(st.tuples(KEYS, st.none() | NUMBERS | SIZES), max_size=25), SHARES, st.data())
@example([("a", float(n)) for n in range(25)], 0.28, None)
def test_few_values_give_exact_quantiles(rows: Rows, share: float, data: Any) -> None:
    plan, table = plan_of(quantile_name(share), pa.float64()), table_of(rows, pa.float64())
    found = by_key(plan, partial(plan, table) if data is None else merged(plan, table, data))
    assert found.keys() == of_keys(rows).keys()
    assert all(same(found[key], at_rank(values, share)) for key, values in of_keys(rows).items())


@examples(100)
@given(st.lists(st.tuples(KEYS, st.none() | NUMBERS | SIZES | CLOSE), max_size=40), SHARES, st.data())
def test_many_values_are_within_the_bound_and_depend_on_nothing_else(
    rows: Rows, share: float, data: st.DataObject
) -> None:
    plan, table = plan_of(quantile_name(share), pa.float64()), table_of(rows, pa.float64())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantiles, "EXACT_VALUES", 4)
        state = merged(plan, table, data)
        whole = partial(plan, table)
    for name in state.column_names:
        assert same(state[name].to_pylist(), whole[name].to_pylist())
    found = by_key(plan, state)
    for key, values in of_keys(rows).items():
        true = at_rank(values, share)
        few = len(different(values)) <= 4
        if true is None or few or not math.isfinite(true) or true == 0:
            assert same(found[key], true)
        else:
            assert abs(found[key] - true) <= abs(true) * quantiles.RELATIVE_ERROR


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 1.0])
def test_the_bound_holds_for_a_million_times_smaller_and_larger_values(share: float) -> None:
    values = np.random.default_rng(1).lognormal(0, 4, 20_000)
    values[::3] *= -1
    plan = plan_of(quantile_name(share), pa.float64())
    table = pa.table({"k": ["a"] * len(values), "v": values})
    pieces = [partial(plan, table[start : start + 999]) for start in range(0, len(values), 999)]
    state = combine(plan, pieces[::-1])
    found = by_key(plan, state)["a"]
    true = at_rank(values.tolist(), share)
    assert true is not None
    assert abs(found - true) <= abs(true) * quantiles.RELATIVE_ERROR
    assert len(state.column(f"__hf_{quantile_name(share)}.values")[0]) < 5000


def test_up_to_256_different_values_nothing_is_rounded() -> None:
    plan = plan_of("quantile[0.5]", pa.int64())
    exact = partial(plan, table_of([("a", 1_000_003 + n) for n in range(256)] * 2, pa.int64()))
    assert by_key(plan, exact) == {"a": 1_000_003 + 127}
    rounded = combine(plan, [exact, partial(plan, table_of([("a", 1_000_003 + 256)], pa.int64()))])
    assert by_key(plan, rounded)["a"] == pytest.approx(1_000_003 + 128, rel=quantiles.RELATIVE_ERROR)
    assert rounded.column("__hf_quantile[0.5].coarse").to_pylist() == [True]


def test_a_key_stays_coarse_when_its_values_share_few_buckets() -> None:
    plan = plan_of("quantile[0.5]", pa.int64())
    close = table_of([("a", 1_000_000 + n) for n in range(300)], pa.int64())
    wide = table_of([("b", n * n) for n in range(300)], pa.int64())
    halves = [partial(plan, wide[:150]), partial(plan, wide[150:])]
    state = combine(plan, [partial(plan, close), *halves])
    assert state.equals(partial(plan, pa.concat_tables([wide, close])))
    assert state.column("__hf_quantile[0.5].coarse").to_pylist() == [True, True]
    found = by_key(plan, combine(plan, [state, partial(plan, table_of([("a", 1_000_001)], pa.int64()))]))
    assert found["a"] == by_key(plan, state)["a"] != 1_000_001


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan])
def test_zero_and_what_is_not_finite_are_never_rounded(value: float) -> None:
    plan = plan_of("quantile[0.5]", pa.float64())
    around = [("a", sign * (n + 0.3)) for n in range(200) for sign in (1, -1)]
    state = partial(plan, table_of([*around, *[("a", value)] * 1000], pa.float64()))
    assert same(by_key(plan, state)["a"], value + 0.0)
    assert state.column("__hf_quantile[0.5].coarse").to_pylist() == [True]


def test_decimals_and_integers_come_out_as_doubles() -> None:
    for kind, values in ((pa.decimal128(9, 2), [Decimal("1.25"), Decimal("3.50")]), (pa.int8(), [1, 2])):
        plan = plan_of("quantile[1.0]", kind)
        found = by_key(plan, partial(plan, table_of([("a", v) for v in values], kind)))
        assert same(found["a"], float(values[-1]))
    with pytest.raises(StateError, match="over a column of type string"):
        plan_of("quantile[0.5]", pa.string())


@given(st.floats(0, 1))
def test_a_share_comes_back_from_the_name(share: float) -> None:
    name = quantile_name(share)
    assert (share_of(name), family(name), is_function(name)) == (share, "quantile", True)


@pytest.mark.parametrize(
    "name", ["quantile", "quantile[2]", "quantile[-1]", "quantile[x]", "quantile[1e]", "median"]
)
def test_names_that_are_no_functions(name: str) -> None:
    assert not is_function(name)
    assert all(is_function(known) for known in FUNCTIONS if known != "quantile")
