"""Sliding-window joins against loops that keep the windows as lists."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from driven import Driven
from test_joins import LEFT, RIGHT, SECOND, Row, drawn, found, in_time, mark, ports, run, table_of

from holdfast.language.operators.joins import join_schema, join_spec, right_names, window_match
from holdfast.language.operators.values import Latest
from holdfast.operators.joins.joining import PairShape
from holdfast.operators.joins.ordered_join import OrderedJoin
from holdfast.operators.joins.window_join import WindowJoin

Kept = list[Row]


def shape_of(window: Latest, other: Latest, on: str | None) -> PairShape:
    spec = join_spec(window_match(window, other), "k", on)
    return PairShape(join_schema(LEFT, RIGHT, spec), right_names(RIGHT, spec))


def window_drawn(chance: random.Random, *, timed: bool) -> Latest:
    if timed and chance.random() < 0.4:
        return Latest(None, chance.randint(1, 8) * SECOND)
    return Latest(chance.choice([0, 1, 3, 20, 100]), None, chance.random() < 0.5)


def in_window(kept: Kept, window: Latest, key: str | None, second: int | None) -> Kept:
    """What of all rows so far is in the window, as far as its key goes."""
    if window.size_us is not None:
        assert second is not None
        return [r for r in kept if r[0] == key and r[1] > second - window.size_us // SECOND]  # type: ignore[operator]
    assert window.rows is not None
    if window.per_key:
        kept = [row for row in kept if row[0] == key]
    return [row for row in kept[-window.rows :] if row[0] == key] if window.rows else []


def paired(
    order: list[tuple[int, Row]], windows: tuple[Latest, Latest], kept: tuple[Kept, Kept]
) -> Counter[Any]:
    pairs: Counter[Any] = Counter()
    for side, row in order:
        if row[0] is not None:
            for other in in_window(kept[1 - side], windows[1 - side], row[0], row[1]):
                pairs[(row[2], other[2]) if side == 0 else (other[2], row[2])] += 1
        kept[side].append(row)
    return pairs


@pytest.mark.parametrize("seed", range(24))
def test_rows_meet_the_windows_as_they_arrive(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    windows = (window_drawn(chance, timed=False), window_drawn(chance, timed=False))
    if not windows[0].rows and not windows[1].rows:
        windows = (Latest(5, None), windows[1])
    logic = WindowJoin((("k",), ("k",)), (LEFT, RIGHT), windows, shape_of(*windows, None))
    driven = Driven(logic, chance.randint(1, 4), tmp_path)
    kept: tuple[Kept, Kept] = ([], [])
    wanted: Counter[Any] = Counter()
    done = [0, 0]
    streams = (drawn(chance, 200, 3, 0), drawn(chance, 200, 3, 1000))
    for _ in range(30):
        step, order = {}, []
        for side, rows in enumerate(streams):
            count = min(chance.choice([0, 1, 4, 20]), len(rows) - done[side])
            if count:
                piece = rows[done[side] : done[side] + count]
                step[side] = table_of(piece, done[side], side, "vw"[side], one_hash=seed % 3 == 0)
                order += [((2 * n + 1) / (2 * count), side, row) for n, row in enumerate(piece)]
                done[side] += count
        if step:
            driven.step(step, chance.randint(0, 3))
            in_order = [(side, row) for _, side, row in sorted(order, key=lambda item: item[:2])]
            wanted += paired(in_order, windows, kept)
        if chance.random() < 0.1:
            driven.rescale(chance.randint(1, 4))
    assert found(driven, "v", "w") == wanted, f"seed {seed}"
    for side, window in enumerate(windows):
        if window.rows == 0:
            assert not any(s.name.endswith(f"-k{side}") for of in driven.segments for s in of)


@pytest.mark.parametrize("seed", range(24))
def test_with_event_time_the_pace_of_the_streams_does_not_matter(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    delay = chance.choice([0, 2, 6])
    windows = (window_drawn(chance, timed=True), window_drawn(chance, timed=True))
    if windows[0].rows == 0 and windows[1].rows == 0:
        windows = (Latest(5, None), windows[1])
    left, right = drawn(chance, 150, 3, 0), drawn(chance, 150, 3, 1000)
    logic = OrderedJoin(ports(delay), (LEFT, RIGHT), shape_of(*windows, "at"), False, windows)
    driven = run(logic, left, right, chance, tmp_path, one_hash=seed % 3 == 0)

    until = min(mark(left, delay), mark(right, delay))
    rows = [(0, row) for row in in_time(left, delay)] + [(1, row) for row in in_time(right, delay)]
    order = sorted((r for r in rows if r[1][1] < until), key=lambda r: (r[1][1], r[0]))  # type: ignore[operator]
    assert found(driven, "v", "w") == paired(order, windows, ([], [])), f"seed {seed}"
