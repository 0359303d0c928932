"""Keyed maps that forget, while merges are under way for many steps: against a dict."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import HASH_COLUMN, key_hash
from holdfast.state.keyed.expiry import SEEN, first_of_lives, of_lives, remembering, unexpired
from holdfast.state.keyed.keyed_map import advance
from holdfast.state.keyed.layout import Merge, blocks_of
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.keyed.segment import Place, Segment

SCHEMA = pa.schema([("k", pa.int64())])
SMALL = Bounds(fan_in=3, rate=2.0, budget=3.0, least_rows=16, pieces=8, piece_rows=24)
TTL = 40


def rows_of(keys: list[int], times: list[int]) -> pa.Table:
    column = pa.array(keys, pa.int64())
    return pa.table(
        {"k": column, SEEN: pa.array(times, pa.int64()), HASH_COLUMN: pa.array(key_hash([column]))}
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_is_over_never_comes_back(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    aggregation = remembering(("k",), (("n", "count", None),), SCHEMA)
    segments: dict[str, tuple[Segment, ...]] = {"first": (), "lives": ()}
    seen: dict[int, int] = {}
    lives: dict[int, tuple[int, int]] = {}
    mark = under_way = 0
    for step in range(150):
        keys = [chance.randrange(600) for _ in range(chance.randrange(1, 40))]
        marks, times = [], []
        for _ in keys:
            mark += chance.randrange(2)
            marks.append(mark)
            times.append(mark + chance.randrange(-50, 5))
        passed = []
        for row, (key, time, at) in enumerate(zip(keys, times, marks, strict=True)):
            if key not in seen or at >= seen[key] + TTL:
                seen[key] = time
                passed.append(row)
            count, latest = lives.get(key, (0, 0))
            over = not count or at >= latest + TTL
            lives[key] = (1, time) if over else (count + 1, max(latest, time))
        rows, at_rows = rows_of(keys, times), np.array(marks)
        found, changed = first_of_lives(aggregation, segments["first"], rows, at_rows, TTL)
        assert found.tolist() == passed
        output, grown = of_lives(aggregation, segments["lives"], rows, at_rows, TTL, each=False)
        wanted = {key: lives[key][0] for key in keys}
        assert dict(zip(output["k"].to_pylist(), output["n"].to_pylist(), strict=True)) == wanted
        for name, new in (("first", changed), ("lives", grown)):
            if new.num_rows:
                place = Place(tmp_path, f"{name}-{step}")
                segments[name] = advance(segments[name], new, aggregation, place, unexpired(TTL, mark), SMALL)
            under_way += any(isinstance(block, Merge) for block in blocks_of(segments[name]))
    assert under_way > 20, "merges took several steps"
    assert sum(segment.rows for segment in segments["first"]) < len(seen)


def test_merging_keeps_the_last_row_even_if_it_is_over(tmp_path: Path) -> None:
    aggregation = remembering(("k",), (), SCHEMA)
    segments: tuple[Segment, ...] = ()
    for step in range(12):
        rows = rows_of(list(range(step * 10, step * 10 + 10)), [step] * 10)
        _, changed = first_of_lives(aggregation, segments, rows, np.full(10, step), TTL)
        segments = advance(
            segments, changed, aggregation, Place(tmp_path, f"s{step}"), unexpired(TTL, 1000), SMALL
        )
    assert all(segment.rows for segment in segments)
    assert sum(segment.rows for segment in segments) < 60


def test_a_chain_of_lives_within_one_step_is_followed_to_its_end(tmp_path: Path) -> None:
    aggregation = remembering(("k",), (), SCHEMA)
    times = list(range(0, 5000, 7))
    rows = rows_of([1] * len(times), times)
    passed, changed = first_of_lives(aggregation, (), rows, np.array(times), 20)
    wanted, last = [], -100
    for row, time in enumerate(times):
        if time >= last + 20:
            wanted.append(row)
            last = time
    assert passed.tolist() == wanted
    assert as_int64(single(changed.columns[-1])).tolist() == [last]
