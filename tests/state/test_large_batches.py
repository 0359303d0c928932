"""Large batches are summed up by shorter ways, which give exactly what the general way gives, or leave the batch to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.state.aggregates import aggregation as summing
from holdfast.state.aggregates import arrow_groups
from holdfast.state.aggregates.aggregation import Aggregation, combine, partial, summed_up
from holdfast.state.aggregates.arrow_groups import ROWS_MIN
from holdfast.state.columns.hashing import HASH_COLUMN, key_hash

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "l": (pa.int64(), [None, 0, 1, -(2**63), 2**63 - 1]),
    "j": (pa.int16(), [None, 0, -5, 7]),
    "s": (pa.string(), [None, "", "a", "é", "a\u0000"]),
    "b": (pa.bool_(), [None, True, False]),
    "d": (pa.date32(), [None, date(1970, 1, 1), date(2026, 2, 3)]),
    "t": (pa.timestamp("us", tz="UTC"), [None, datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
}  # fmt: skip
NUMBERS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "v": (pa.int64(), st.integers(-1000, 1000)),
    "w": (pa.int32(), st.none() | st.integers(-(2**31), 2**31 - 1)),
    "x": (pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.none() | st.floats()),
}
FUNCTIONS = ("count", "sum", "avg", "min", "max")


@contextlib.contextmanager
def few_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_groups, "ROWS_MIN", 1)
        patch.setattr(summing, "ROWS_MIN", 1)
        patch.setattr(summing, "BUCKET_ROWS", 16)
        yield


@st.composite
def batches(draw: st.DrawFn) -> tuple[Aggregation, pa.Table]:
    rows = draw(st.integers(6, 90))
    by = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    columns = {}
    for name in by:
        kind, values = KEYS[name]
        columns[name] = pa.array([draw(st.sampled_from(values)) for _ in range(rows)], kind)
    for name, (kind, value) in NUMBERS.items():
        columns[name] = pa.array([draw(value) for _ in range(rows)], kind)
    table = pa.table(columns)
    asked = draw(
        st.lists(
            st.tuples(st.sampled_from(FUNCTIONS), st.sampled_from(sorted(NUMBERS))), min_size=1, max_size=4
        )
    )
    aggregates = [(f"o{n}", function, column) for n, (function, column) in enumerate(asked)]
    return Aggregation.plan(by, [*aggregates, ("rows", "count", None)], table.schema), table


def general(plan: Aggregation, table: pa.Table) -> pa.Table:
    """By the general way: hashes that are there already keep Arrow away, and pieces are small."""
    hashes = key_hash([table.column(name) for name in plan.by])
    hashed = table.append_column(HASH_COLUMN, pa.array(hashes))
    return combine(plan, [partial(plan, hashed.slice(at, 10)) for at in range(0, table.num_rows, 10)])


@examples(40)
@given(batches())
def test_ways_for_large_batches_give_what_the_general_way_gives(case: tuple[Aggregation, pa.Table]) -> None:
    plan, table = case
    expected = general(plan, table).to_pylist()
    with few_are_many():
        short, found = summed_up(plan, table), partial(plan, table)
    if short is not None:
        assert repr(short.to_pylist()) == repr(expected)
    floats = any(column == "f" for _, _, column in plan.aggregates)
    assert found.schema == plan.state_schema
    if not floats:  # sums of doubles may differ in the last place, see double_sums.py
        assert repr(found.to_pylist()) == repr(expected)


def plan_of(table: pa.Table) -> Aggregation:
    return Aggregation.plan(["k"], [("n", "count", None), ("s", "sum", "v"), ("m", "max", "v")], table.schema)


@pytest.mark.parametrize("keys", [1, 1000, 3_000_000])
def test_a_large_batch_is_summed_up_by_the_way_that_fits_and_comes_to_the_same(keys: int) -> None:
    random = np.random.default_rng(keys)
    rows = summing.BUCKET_ROWS + 12_345
    table = pa.table({"k": random.integers(0, keys, rows), "v": random.integers(-9, 9, rows)})
    plan = plan_of(table)
    assert (summed_up(plan, table) is not None) == (keys <= 1000)
    found = partial(plan, table)
    hashes = found.column(HASH_COLUMN).to_numpy()
    assert (hashes[1:] >= hashes[:-1]).all()
    expected = table.group_by("k").aggregate([([], "count_all"), ("v", "sum"), ("v", "max")]).sort_by("k")
    mine = pa.table([found.column(1), *found.columns[2:]], names=["k", "n", "s", "m"]).sort_by("k")
    assert mine.column("k").to_pylist() == expected.column("k").to_pylist()
    assert mine.column("n").to_pylist() == expected.column("count_all").to_pylist()
    assert mine.column("s").cast(pa.int64()).to_pylist() == expected.column("v_sum").to_pylist()
    assert mine.column("m").to_pylist() == expected.column("v_max").to_pylist()


def test_sums_that_might_leave_64_bits_are_not_for_arrow() -> None:
    table = pa.table({"k": [1] * ROWS_MIN, "v": [2**62] * ROWS_MIN})
    assert summed_up(plan_of(table), table) is None
    (row,) = partial(plan_of(table), table).to_pylist()
    assert int(row["__hf_s.sum"]) == 2**62 * ROWS_MIN


def test_a_key_with_more_rows_than_a_bucket_stays_whole() -> None:
    table = pa.table({"k": [1.5] * 100 + [2.5], "v": [1] * 101})
    with few_are_many():
        found = partial(plan_of(table), table).to_pylist()
    assert sorted((row["k"], row["__hf_n.count"]) for row in found) == [(1.5, 100), (2.5, 1)]
