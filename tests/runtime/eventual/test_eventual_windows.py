"""Windows, records and restores against a naive model: random windows, random kills, loss of the last frames."""

from __future__ import annotations

import random

import pytest
from sampling import Extent
from simulated import (
    Row,
    counted,
    naive_counted,
    naive_timed,
    run_with_kills,
    timed,
    told,
)

from holdfast.state.eventual.books import Pace

PACES = (Pace(None, 0, 1), Pace(2_000, 0, 3), Pace(10_000, 5_000, 10), Pace(100_000, 0, 1))
COUNTS = ((1, 1), (3, 3), (10, 10), (1000, 1000), (6, 4), (8, 2), (5, 1))
TIMES = ((10, 10, 0), (10, 10, 7), (10, 5, 3), (7, 2, 4))


def rows_of(seed: int, count: int, keys: int) -> list[Row]:
    chance, second, found = random.Random(seed), 0, []
    for _ in range(count):
        second += chance.choice((0, 0, 0, 1, 2))
        found.append(
            (f"k{chance.randrange(keys)}", chance.randint(-9, 99), second - chance.choice((0, 0, 1, 9)))
        )
    return found


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_windows_over_rows_survive_any_kill(extent: Extent, pace: Pace) -> None:
    cases = [(seed, shape) for seed in range(60) for shape in COUNTS]
    found = 0
    for seed, (size, every) in extent.of(cases, 3):
        rows = rows_of(seed, 200, random.Random(seed).choice((1, 3, 40)))
        log, restores = run_with_kills(counted(size, every), rows, pace, seed)
        found += restores
        assert told(log, False) == naive_counted(rows, size, every), f"seed {seed}, {size=}, {every=}"
    assert found


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_windows_over_time_survive_any_kill(extent: Extent, pace: Pace) -> None:
    cases = [(seed, shape) for seed in range(60) for shape in TIMES]
    found = 0
    for seed, (size, slide, delay) in extent.of(cases, 3):
        rows = rows_of(seed, 200, random.Random(seed).choice((1, 3, 20)))
        log, restores = run_with_kills(timed(size, slide, delay), rows, pace, seed)
        found += restores
        assert told(log, True) == naive_timed(rows, size, slide, delay), (
            f"seed {seed}, {size=}, {slide=}, {delay=}"
        )
    assert found
