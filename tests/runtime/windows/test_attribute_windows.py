"""Windows by an attribute and by marks against a loop over rows: the same for every cut and number of partitions."""

from __future__ import annotations

import itertools
import math
import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import driven
import pyarrow as pa
import pytest
from attribute_model import KINDS, WINDOWS, Row, Window, drawn, emitted_by, logic_of, naive, table_of
from driven import Driven, with_one_hash

import holdfast as hf
from holdfast.errors import RegionParkedError
from holdfast.language.operators.values import DeltaWindow, MarkedWindow
from holdfast.state.windows.attributes import in_units
from holdfast.state.windows.row_windows import ROWS
from holdfast.store.urls import open_store
from holdfast.testing import compare_sequence, run_local


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("shape", WINDOWS)
def test_results_depend_neither_on_cuts_nor_on_partitions(
    tmp_path: Path, shape: str, kind: str, seed: int
) -> None:
    chance = random.Random(f"{shape} {kind} {seed}")
    arrow, make, distance = KINDS[kind]
    delta = distance(chance.choice([0, 1, 4, 10, 40]))
    window: Window = MarkedWindow("end")
    if shape != "marked":
        window = DeltaWindow(delta, "a", None if shape == "tumbling" else chance.choice([1, 1, 2, 5]))
    by = chance.choice([("k",), ("k",), ()])
    # One stream of all keys falls whenever another key's row comes.
    rows = drawn(chance, make, falls=chance.random() < 0.5)
    driven = Driven(logic_of(window, arrow, by), chance.randint(1, 4), tmp_path)
    cuts = sorted({0, len(rows), *(chance.randrange(len(rows) + 1) for _ in range(chance.randrange(12)))})
    colliding = chance.random() < 0.3
    for begin, end in itertools.pairwise(cuts):
        table = table_of(rows[begin:end], begin, arrow)
        driven.step(with_one_hash(table) if colliding else table, chance.randint(0, 3))
        if chance.random() < 0.2:
            driven.rescale(chance.randint(1, 4))
    compare_sequence(naive(rows, window, keyed=bool(by)), emitted_by(driven))


def test_floats_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("a", far, None, n) for n, far in enumerate([0.0, math.nan, 1.0, -math.inf, 5.5, math.inf])
    ]
    driven = Driven(logic_of(DeltaWindow(5, "a"), pa.float64()), 1, tmp_path)
    driven.step(table_of(rows, 0, pa.float64()), 0)
    assert [row["all"] for row in driven.emitted] == [[0, 2, 3], [4]]


def test_distances_beyond_the_range_of_numbers_are_no_distances(tmp_path: Path) -> None:
    rows: list[Row] = [("a", far, None, n) for n, far in enumerate([-(2**63), 0, 2**63 - 1, 2**63 - 1])]
    for number, window in enumerate([DeltaWindow(10, "a"), DeltaWindow(2**63 - 1, "a", 1)]):
        (tmp_path / str(number)).mkdir()
        driven = Driven(logic_of(window, pa.int64()), 1, tmp_path / str(number))
        for first in range(4):
            driven.step(table_of(rows[first : first + 1], first, pa.int64()), 0)
        wanted = [[[0], [1]], [[0], [1], [1, 2], [1, 2, 3]]][number]
        assert [row["all"] for row in driven.emitted] == wanted


def test_between_whole_numbers_a_fraction_more_makes_no_difference() -> None:
    assert in_units(2.5, pa.int32()) == in_units(2, pa.int32()) == 2
    assert in_units(Decimal("0.015"), pa.decimal128(10, 2)) == 1
    assert in_units(0.1, pa.decimal128(10, 1)) == 1, "as it is written, not as it is stored"
    assert (
        in_units(1.5, pa.timestamp("us")) == in_units(timedelta(seconds=1.5), pa.timestamp("ns")) == 1_500_000
    )
    assert in_units(timedelta(seconds=1), pa.int64()) is None
    assert in_units(1, pa.string()) is None
    assert in_units(2**63, pa.int64()) is None
    assert in_units(1, pa.decimal128(30, 2)) is None


def test_a_key_has_one_state_row(tmp_path: Path) -> None:
    windows: list[Window] = [DeltaWindow(3, "a"), DeltaWindow(3, "a", 2), MarkedWindow("end")]
    for shape, window in enumerate(windows):
        (tmp_path / str(shape)).mkdir()
        driven = Driven(logic_of(window, pa.int64()), 1, tmp_path / str(shape))
        for step in range(30):
            rows: list[Row] = [(f"k{n % 11}", step * 30 + n, n % 7 == 0, n) for n in range(30)]
            driven.step(table_of(rows, step * 30, pa.int64()), 0)
        driven.rescale(1)
        assert sum(segment.rows for segment in driven.segments[0]) == 11


# --- whole runs ---


ROWS_IN = [(f"k{n % 5}" if n % 7 else None, n * n % 17 + n, n % 9 == 4, n) for n in range(150)]
SHAPES = [hf.tumbling(delta=12, of="a"), hf.sliding(delta=12, of="a", every=3), hf.tumbling(until="end")]


class Weak(driven.Weak):
    def fails_at(self, row: Any) -> bool:
        return bool(row.total >= 250)


def attributed(shelf: str, window: Window, rows_per_step: int = 7) -> hf.Topology:
    topology = hf.Topology("attributed")
    rows = hf.Rows(ROWS_IN, "k string, a long, end boolean, v long", rows_per_step=rows_per_step)
    source = topology.source(rows, name="rows").consistent("r", period=0.02, max_consecutive_resets=2)
    made = source.aggregate("k", window=window, total=hf.sum("v"), name="made")
    passed = made.apply(Weak, "k string, window_rows long, total long", name="weak")
    passed.sink(hf.MemorySink(shelf), name="out")
    return topology


@pytest.mark.parametrize("window", SHAPES, ids=["tumbling", "sliding", "marked"])
def test_a_stored_state_goes_on_over_another_number_of_partitions(
    tmp_path: Path, shelf: str, window: Window
) -> None:
    store = f"file:{tmp_path}/store"
    Weak.failures = 1000
    with pytest.raises(RegionParkedError):
        run_local(attributed(shelf, window), store, partitions=3)
    kinds = [event.kind for event in open_store(store).events()]
    assert "epoch.published" in kinds, "there is something to go on from"
    Weak.failures = 0
    run_local(attributed(shelf, window, rows_per_step=5), store, partitions=2)
    wanted = [{"k": r["k"], ROWS: r[ROWS], "total": r["total"]} for r in naive(ROWS_IN, window)]
    # The hosted operator sees the windows in the order of the rows that completed them.
    compare_sequence(wanted, hf.MemorySink.rows(shelf))
