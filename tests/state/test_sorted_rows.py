"""Where a hash lies in sorted rows: with and without an index, for hashes spread evenly or not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.state.columns.grouping import group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.columns.sorted_rows import SortedRows

LOWEST, HIGHEST = -(2**63), 2**63 - 1
HASHES = st.one_of(
    st.lists(st.integers(LOWEST, HIGHEST), min_size=1, max_size=60),
    st.lists(st.integers(-5, 5), min_size=1, max_size=60),
    st.lists(st.sampled_from([LOWEST, -1, 0, HIGHEST - 1, HIGHEST]), min_size=1, max_size=60),
)


def sorted_rows(hashes: list[int]) -> SortedRows:
    values = np.sort(np.array(hashes, dtype=np.int64))
    return SortedRows(pa.table({HASH_COLUMN: values, "k": np.arange(len(values))}))


def check_search(rows: SortedRows, sought: I64) -> None:
    sought = sought[(sought >= rows.first) & (sought <= rows.last)]
    places, found = rows.search(sought)
    assert places.tolist() == np.flatnonzero(np.isin(sought, rows.hashes)).tolist()
    assert found.tolist() == np.searchsorted(rows.hashes, sought[places]).tolist()


@examples(300)
@given(HASHES, HASHES)
def test_a_search_finds_the_first_row_of_each_hash(stored: list[int], others: list[int]) -> None:
    sought = np.unique(np.array([*stored, *others], dtype=np.int64))
    rows = sorted_rows(stored)
    check_search(rows, sought)
    assert rows.prepare(len(stored), len(stored)) == len(stored)
    check_search(rows, sought)


@pytest.mark.parametrize("stored", [1, 1_000, 200_000])
def test_evenly_spread_hashes_are_found_by_the_index(stored: int) -> None:
    rng = np.random.default_rng(stored)
    rows = sorted_rows(rng.integers(LOWEST, HIGHEST, stored).tolist())
    assert rows.prepare(stored, stored) == stored
    some = rows.hashes[rng.integers(0, stored, 500)]
    check_search(rows, np.unique(np.concatenate([some, rng.integers(LOWEST, HIGHEST, 500)])))


def test_many_rows_with_one_hash_do_not_make_the_index_slow() -> None:
    rows = sorted_rows([0] * 50_000 + [1] * 50_000 + [HIGHEST])
    rows.prepare(100_000, 200_000)
    check_search(rows, np.array([0, 1, 2, HIGHEST]))


def test_an_index_is_made_when_it_pays_off_and_there_is_time() -> None:
    rows = sorted_rows(list(range(1000)))
    assert rows.prepare(1000, 999) == 0
    assert rows.prepare(10, 1000) == 0
    rows.search(np.arange(120))
    assert rows.prepare(10, 1000) == 1000
    assert rows.prepare(1000, 1000) == 0, "it is there"


@given(HASHES, st.integers(LOWEST, HIGHEST) | st.integers(-6, 6))
def test_rows_up_to_a_hash_are_counted(stored: list[int], hash_: int) -> None:
    rows = sorted_rows(stored)
    assert rows.upto(hash_) == sum(value <= hash_ for value in stored)
    assert rows.upto(None) == 0


@examples(300)
@given(st.lists(HASHES, min_size=1, max_size=8), st.booleans())
def test_rows_are_grouped_in_a_stable_order(stretches: list[list[int]], presorted: bool) -> None:
    hashes = [value for stretch in stretches for value in (sorted(stretch) if presorted else stretch)]
    values = np.array(hashes, dtype=np.int64)
    grouping = group_rows(values, [pa.array(values)])
    assert grouping.order.tolist() == np.argsort(values, kind="stable").tolist()
    assert len(grouping.starts) == len(set(hashes))


def test_hashes_that_differ_in_their_lowest_bits_only_are_ordered() -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.integers(LOWEST, HIGHEST, 1000), rng.integers(0, 50, 1000)])
    assert group_rows(values, [pa.array(values)]).order.tolist() == np.argsort(values, kind="stable").tolist()
