"""First, last and collect against lists in position order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.errors import StateError
from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.state.aggregates.aggregation import combine, finish, lift, partial, running
from holdfast.state.aggregates.function_names import FUNCTIONS, GROWING, ORDERED, POSITION
from tests.state.splitting import KEYS, Rows, by_key, merged, of_keys, plan_of, same, table_of

KINDS = {
    pa.int32(): st.integers(-5, 5),
    pa.float64(): st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]),
    pa.string(): st.text(max_size=3),
    pa.decimal128(30, 2): st.decimals(-9, 9, places=2),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int64()): st.lists(st.integers(0, 3), max_size=2),
    pa.struct({"x": pa.int64()}): st.fixed_dictionaries({"x": st.none() | st.integers(0, 3)}),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.DataType, Rows]:
    kind = draw(st.sampled_from(list(KINDS)))
    return kind, draw(st.lists(st.tuples(KEYS, st.none() | KINDS[kind]), max_size=20))


@examples(150)
@given(cases(), st.data())
def test_positions_decide_whatever_the_cuts_and_orders(
    case: tuple[pa.DataType, Rows], data: st.DataObject
) -> None:
    kind, rows = case
    plan = plan_of(["first", "last", "collect"], kind)
    found = by_key(plan, merged(plan, table_of(rows, kind), data))
    assert found.keys() == of_keys(rows).keys()
    for key, values in of_keys(rows).items():
        first, last, everything = found[key]
        assert same(first, values[0])
        assert same(last, values[-1])
        assert same(everything, [value for value in values if value is not None])


@examples(100)
@given(cases(), st.integers(0, 20))
def test_running_first_and_last_are_those_of_the_rows_so_far(
    case: tuple[pa.DataType, Rows], cut: int
) -> None:
    kind, rows = case
    plan, table = plan_of(["first", "last"], kind), table_of(rows, kind)
    output, changed = running(plan, lift(plan, table[cut:]), partial(plan, table[:cut]))
    so_far = of_keys(rows[:cut])
    for row, (key, value) in enumerate(rows[cut:]):
        so_far.setdefault(key, []).append(value)
        assert same(output["first"][row].as_py(), so_far[key][0])
        assert same(output["last"][row].as_py(), value)
    assert all(same(last, so_far[key][-1]) for key, (_, last) in by_key(plan, changed).items())


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 9)), min_size=1, max_size=12), st.data()
)
def test_rows_that_share_a_position_are_ordered_by_value_nulls_first(
    rows: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    plan = plan_of(["first", "last", "collect"], pa.int64())
    table = table_of([("a", value) for _, value in rows], pa.int64())
    for name in POSITION:
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, pa.array([place for place, _ in rows], pa.int64()))
    first, last, everything = by_key(plan, merged(plan, table, data))["a"]
    ordered = sorted(rows, key=lambda row: (row[0], -1 if row[1] is None else row[1]))
    assert (first, last) == (ordered[0][1], ordered[-1][1])
    assert everything == [value for _, value in ordered if value is not None]


def test_a_later_file_comes_after_every_row_of_an_earlier_one() -> None:
    table = pa.table({"k": ["a", "a"], "v": ["new", "old"], POSITION[0]: [7, 6], POSITION[1]: [0, 2**40]})
    plan = plan_of(["first", "last", "collect"], pa.string())
    assert by_key(plan, partial(plan, table)) == {"a": ("old", "new", ["old", "new"])}


def test_types_are_those_of_the_column() -> None:
    plan = plan_of(["first", "collect"], pa.decimal128(9, 2))
    assert plan.output_schema.types[1:] == [
        pa.decimal128(9, 2),
        pa.list_(pa.field("element", pa.decimal128(9, 2))),
    ]
    assert plan.ordered
    assert not plan_of("max", pa.int64()).ordered


def test_positions_are_those_that_streams_carry() -> None:
    assert POSITION_COLUMNS[1:] == POSITION
    assert all(POSITION_FIELDS.field(name).type == pa.int64() for name in POSITION)
    assert set(FUNCTIONS) >= ORDERED | GROWING


@pytest.mark.parametrize("function", sorted((GROWING - {"quantile"}) | {"quantile[0.5]"}))
def test_lists_are_not_given_row_by_row(function: str) -> None:
    plan = plan_of(function, pa.int64())
    with pytest.raises(StateError, match="no value per row"):
        running(plan, lift(plan, table_of([("a", 1)], pa.int64())), plan.state_schema.empty_table())


@pytest.mark.parametrize("function", ["first", "last", "collect"])
def test_a_column_without_a_type_is_refused(function: str) -> None:
    with pytest.raises(StateError, match=f"{function} over a column of type null"):
        plan_of(function, pa.null())


def test_slices_of_lists_keep_their_own_elements() -> None:
    plan = plan_of("collect", pa.int64())
    state = partial(plan, table_of([(str(n % 5), n) for n in range(20)], pa.int64()))
    rows: dict[str, Any] = {}
    for start in range(state.num_rows):
        rows |= by_key(plan, combine(plan, [state[start : start + 1]]))
    assert rows == {str(k): [k, k + 5, k + 10, k + 15] for k in range(5)}
    assert finish(plan, state).num_rows == 5


def test_large_tables_are_ordered_too() -> None:
    rng = np.random.default_rng(3)
    order = rng.permutation(5000)
    rows = [(str(n % 7), int(n)) for n in range(5000)]
    plan = plan_of(["first", "last", "collect"], pa.int64())
    found = by_key(plan, partial(plan, table_of(rows, pa.int64()).take(pa.array(order))))
    expected = {key: (values[0], values[-1], values) for key, values in of_keys(rows).items()}
    assert found == expected
