"""Changelogs merge by key whatever order their files come in, and a wrong row is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.bench.measure.inputs import KeyedInputs, rows_in
from holdfast.bench.subjects.changelog import Totals, first_difference, joined, merged, totals_of
from holdfast.bench.subjects.keyed import look
from holdfast.bench.subjects.state_growth import filling_inputs
from holdfast.errors import HoldfastError


def changes(*rows: tuple[int, int, int, int]) -> pa.Table:
    key, total, n, top = (list(column) for column in zip(*rows, strict=True))
    return pa.table({"key": key, "total": total, "n": n, "top": top})


def row(totals: Totals, key: int) -> tuple[int, int, int]:
    return int(totals.total[key]), int(totals.n[key]), int(totals.top[key])


OLD = changes((0, 5, 1, 5), (2, 7, 2, 4))
NEW = changes((2, 9, 3, 4), (1, 1, 1, 1))
NEWEST = changes((2, 30, 5, 20), (2, 10, 4, 4))


@pytest.mark.parametrize(
    "tables", [[OLD, NEW, NEWEST], [NEWEST, NEW, OLD], [pa.concat_tables([NEWEST, OLD, NEW])]]
)
def test_the_row_with_the_largest_count_of_a_key_wins(tables: list[pa.Table]) -> None:
    found = merged(tables, keys=4)
    assert [row(found, key) for key in range(4)] == [(5, 1, 5), (1, 1, 1), (30, 5, 20), (0, 0, 0)]


def test_totals_are_sum_count_and_max_of_the_rows() -> None:
    found = totals_of([(np.array([1, 1, 0, 1]), np.array([4, 2, 7, 3]))], 3)
    assert [row(found, key) for key in range(3)] == [(7, 1, 7), (9, 3, 4), (0, 0, 0)]


def test_totals_of_parts_are_the_totals_of_the_whole() -> None:
    random = np.random.default_rng(1)
    keys, values = random.integers(0, 50, 1000), random.integers(0, 9, 1000)
    pieces = [(keys[at : at + 100], values[at : at + 100]) for at in range(0, 1000, 100)]
    whole = totals_of([(keys, values)], 50)
    for found in (totals_of(pieces, 50), joined((totals_of([piece], 50) for piece in pieces), 50)):
        assert first_difference(found, whole) is None
        assert found.summary() == whole.summary()


@pytest.mark.parametrize("wrong", [(2, 31, 5, 20), (2, 30, 6, 20), (2, 30, 5, 21)])
def test_a_wrong_row_is_named(wrong: tuple[int, int, int, int]) -> None:
    found, wanted = merged([changes(wrong)], 4), merged([NEWEST], 4)
    said = first_difference(found, wanted)
    assert said is not None
    assert said.startswith("key 2 is ")
    assert found.summary() != wanted.summary()


def test_inputs_know_what_they_come_to(tmp_path: Path) -> None:
    inputs = KeyedInputs(tmp_path / "in", rows_per_file=100, keys=10, distinct=2)
    assert rows_in(inputs.directory(5)) == 500
    assert inputs.totals(5).summary()["rows"] == 500
    assert first_difference(inputs.totals(2), joined([inputs.totals(1), inputs.totals(1)], 10)) is not None


def test_output_that_is_not_what_the_input_comes_to_fails_the_benchmark(tmp_path: Path) -> None:
    inputs = KeyedInputs(tmp_path / "in", rows_per_file=100, keys=10, distinct=2)
    with pytest.raises(HoldfastError, match="wrong rows: key 0 "):
        look(inputs, tmp_path / "empty", steps=3)


def test_filling_touches_every_key_once(tmp_path: Path) -> None:
    filling = filling_inputs(tmp_path / "in", keys=1000, rows=300)
    files = filling.directory(len(filling.distinct))
    assert len(filling.distinct) == 4
    assert rows_in(files) == 1000
    keys = np.sort(pa.concat_tables([pq.read_table(f) for f in files.iterdir()])["key"].to_numpy())
    assert (keys == np.arange(1000)).all()
