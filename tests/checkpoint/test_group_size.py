"""Which size of groups costs least."""

from __future__ import annotations

import pytest

from holdfast.checkpoint.group_size import (
    FILE_S,
    SIZES,
    Load,
    Prices,
    Sample,
    best,
    costs,
    fitted,
)  # fmt: skip
from holdfast.runtime.runs.group_profile import GroupProfile

LARGEST = SIZES[-1]


def test_prices_are_found_in_what_checkpoints_took() -> None:
    made = [
        Sample(f, b, 0.01 * f + 2e-8 * b) for f, b in ((1, 10_000), (4, 20_000), (2, 900_000), (9, 5_000))
    ]
    found = fitted(made)
    assert found.file_s == pytest.approx(0.01)
    assert found.byte_s == pytest.approx(2e-8)


def test_checkpoints_that_are_all_alike_scale_the_usual_prices() -> None:
    found = fitted([Sample(2, 1_000_000, 0.016)] * 5)
    assert found.file_s == pytest.approx(2 * FILE_S)


def test_prices_are_never_below_zero() -> None:
    # Larger ones took less time: files alone explain it.
    found = fitted([Sample(1, 1_000_000, 0.01), Sample(2, 10_000, 0.02), Sample(3, 1_000, 0.03)])
    assert found.file_s > 0
    assert found.byte_s >= 0
    assert fitted([]) == Prices()


def test_expensive_bytes_make_small_groups_and_expensive_files_large_ones() -> None:
    load = Load(window_rows=100_000, new_rows=1_000, steps=2, row_bytes=100.0)
    small, large = best(load, Prices(0.0001, 1e-6), LARGEST), best(load, Prices(0.5, 1e-9), SIZES[0])
    assert small < large


def test_longer_periods_make_larger_groups() -> None:
    """The document's figures 8 and 9: 512 rows are best with a checkpoint each second, more with one in ten seconds."""
    prices = Prices(0.002, 5e-8)
    each_second = best(Load(32_768, 1_250, 1, 90.0), prices, LARGEST)
    in_ten = best(Load(32_768, 12_500, 10, 90.0), prices, LARGEST)
    assert each_second < in_ten


def test_the_present_size_stays_unless_another_saves_a_tenth() -> None:
    load, prices = Load(20_000, 1_000, 2, 10.0), Prices()
    found = costs(load, prices)
    least = min(SIZES, key=lambda rows: found[rows])
    near = [rows for rows in SIZES if rows != least and found[least] > 0.9 * found[rows]]
    far = [rows for rows in SIZES if found[least] <= 0.9 * found[rows]]
    assert near
    assert far
    assert all(best(load, prices, rows) == rows for rows in (least, *near))
    assert all(best(load, prices, rows) == least for rows in far)


def test_every_size_has_its_cost_and_the_best_is_the_least() -> None:
    load, prices = Load(50_000, 500, 5, 64.0), Prices(0.003, 1e-8)
    found = costs(load, prices)
    assert set(found) == set(SIZES)
    chosen = best(load, prices, LARGEST)
    assert found[chosen] == min(found.values()) or chosen == LARGEST


def test_nothing_is_chosen_before_something_was_measured() -> None:
    profile = GroupProfile(LARGEST)
    profile.stepped()
    assert profile.chosen(100_000, 1_000, 10_000_000) == LARGEST
    assert list(profile.news()) == []
    for files, size in ((1, 100_000), (3, 120_000), (2, 500_000), (5, 90_000)):
        profile.stored(Sample(files, size, 0.0001 * files + 1e-6 * size))
        profile.stepped()
    assert profile.chosen(100_000, 2_000, 10_000_000) < LARGEST
    assert list(profile.news()) == [profile.rows]
    assert list(profile.news()) == []
