"""Windows, records and restores against a naive model: random windows, random kills, loss of the last frames."""

from __future__ import annotations

import random
from functools import partial

import pytest
from sampling import Extent
from simulated import (
    Row,
    apart,
    counted,
    in_sessions,
    marked,
    naive_apart,
    naive_counted,
    naive_marked,
    naive_near,
    naive_sessions,
    naive_timed,
    near,
    run_with_kills,
    timed,
    told,
)

from holdfast.state.eventual.books import Pace

PACES = (Pace(None, 0, 1), Pace(2_000, 0, 3), Pace(10_000, 5_000, 10), Pace(100_000, 0, 1))
COUNTS = ((1, 1), (3, 3), (10, 10), (1000, 1000), (6, 4), (8, 2), (5, 1))
SESSIONS = ((1, 0), (4, 0), (5, 7), (12, 10), (500, 3))
ATTRIBUTES = (
    (marked(), naive_marked),
    *((apart(delta), partial(naive_apart, delta=delta)) for delta in (0, 5, 40)),
    *(
        (near(delta, every), partial(naive_near, delta=delta, every=every))
        for delta, every in ((5, 1), (20, 3))
    ),
)
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


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_sessions_survive_any_kill(extent: Extent, pace: Pace) -> None:
    """Out of order too: sessions get earlier beginnings, and rows between two of them make them one."""
    cases = [(seed, shape) for seed in range(60) for shape in SESSIONS]
    found = results = 0
    for seed, (gap, delay) in extent.of(cases, 3):
        rows = rows_of(seed, 200, random.Random(seed).choice((1, 3, 20)))
        log, restores = run_with_kills(in_sessions(gap, delay), rows, pace, seed)
        found += restores
        results += len(log.rows)
        assert told(log, True) == naive_sessions(rows, gap, delay), f"seed {seed}, {gap=}, {delay=}"
    assert found
    assert results


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_windows_by_attribute_and_by_marks_survive_any_kill(extent: Extent, pace: Pace) -> None:
    cases = [(seed, number) for seed in range(40) for number in range(len(ATTRIBUTES))]
    found = 0
    for seed, number in extent.of(cases, 3):
        logic, naive = ATTRIBUTES[number]
        rows = rows_of(seed, 200, random.Random(seed).choice((1, 3, 40)))
        log, restores = run_with_kills(logic, rows, pace, seed)
        found += restores
        assert told(log, False) == naive(rows), f"seed {seed}, case {number}"
    assert found
