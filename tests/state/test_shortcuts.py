"""Shorter ways give exactly what the general way gives, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.aggregates.accumulator import Accumulator
from holdfast.state.aggregates.accumulators import accumulator
from holdfast.state.aggregates.whole_number_paths import OrderedInts, batch_states, paired_states
from holdfast.state.columns.grouping import Runs

FUNCTIONS = ("count", "sum", "avg", "min", "max")
TYPES = (pa.int64(), pa.int16(), pa.decimal128(12, 2), pa.float64(), pa.timestamp("us", tz="UTC"))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_timestamp(kind):
        return st.integers(0, 10**9).map(lambda s: datetime.fromtimestamp(s, UTC))
    if pa.types.is_decimal(kind):
        return st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-2))
    if pa.types.is_floating(kind):
        return st.integers(-100, 100).map(float)
    if kind == pa.int16():
        return st.integers(-(2**15), 2**15 - 1)
    return st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@st.composite
def runs_of(draw: st.DrawFn) -> tuple[Accumulator, pa.Array, np.ndarray, Runs]:
    """An accumulator, a column for it, an order of its rows, and runs of them."""
    kind = draw(st.sampled_from(TYPES))
    sums = not pa.types.is_timestamp(kind)
    function = draw(st.sampled_from(FUNCTIONS if sums else ("count", "min", "max")))
    value = values_of(kind)
    nulls = draw(st.booleans())
    column = pa.array(draw(st.lists(st.none() | value if nulls else value, min_size=1, max_size=40)), kind)
    order = np.array(draw(st.permutations(range(len(column)))), dtype=np.int64)
    cuts = draw(st.sets(st.integers(1, len(column)), max_size=8)) - {len(column)}
    return accumulator("out", function, kind), column, order, Runs(np.array([0, *sorted(cuts)]), len(column))


def same(mine: list[pa.Array], others: list[pa.Array]) -> bool:
    return all(one.type == two.type and one.equals(two) for one, two in zip(mine, others, strict=True))


@given(runs_of())
def test_states_of_a_batch_are_the_folded_lifted_rows(case: tuple[Accumulator, pa.Array, Any, Runs]) -> None:
    acc, column, order, runs = case
    short = batch_states(acc, column, OrderedInts(order), runs)
    if short is not None:
        lifted = [part.take(pa.array(order)) for part in acc.lift(column, len(column))]
        assert same(short, acc.fold(lifted, runs))


@given(runs_of(), st.data())
def test_pairs_are_what_folding_two_states_gives(
    case: tuple[Accumulator, pa.Array, Any, Runs], data: st.DataObject
) -> None:
    acc, column, _, _ = case
    own = acc.lift(column, len(column))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(column) - 1)))), dtype=np.int64)
    found = [part.take(pa.array(data.draw(st.permutations(rows.tolist())), pa.int64())) for part in own]
    short = paired_states(acc, own, rows, found)
    if short is not None:
        before = {int(row): place for place, row in enumerate(rows)}
        pieces: list[list[pa.Array]] = [[] for _ in own]
        starts, length = [], 0
        for row in range(len(column)):
            starts.append(length)
            for part, (mine, theirs) in enumerate(zip(own, found, strict=True)):
                pieces[part] += [theirs.slice(before[row], 1)] if row in before else []
                pieces[part].append(mine.slice(row, 1))
            length += 1 + (row in before)
        folded = acc.fold([pa.concat_arrays(p) for p in pieces], Runs(np.array(starts), length))
        assert same(short, folded)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whole_numbers_without_nulls_go_the_shorter_way(function: str) -> None:
    column = pa.array([3, -1, 4, 1, 5], pa.int64())
    acc = accumulator("out", function, pa.int64())
    runs = Runs(np.array([0, 2]), 5)
    states = batch_states(acc, column, OrderedInts(np.arange(5)), runs)
    assert states is not None
    assert paired_states(acc, states, np.array([1]), [part.slice(0, 1) for part in states]) is not None


def test_sums_that_might_leave_64_bits_go_the_general_way() -> None:
    column = pa.array([2**62, 2**62], pa.int64())
    acc = accumulator("out", "sum", pa.int64())
    assert batch_states(acc, column, OrderedInts(np.arange(2)), Runs(np.array([0]), 2)) is None
    states = acc.lift(column, 2)
    assert paired_states(acc, states, np.array([0]), [part.slice(1, 1) for part in states]) is None
