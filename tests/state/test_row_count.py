"""How many rows a partition holds, however many segments repeat them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from keyed_steps import apply_batch, contents

from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed import row_count
from holdfast.state.keyed.layout import Merge, blocks_of
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS, Bounds
from holdfast.state.keyed.row_count import rows_held
from holdfast.state.keyed.segment import Segments

PLAN = Aggregation.plan(("k",), (("n", "count", None),), pa.schema({"k": pa.int64()}))


def steps(directory: Path, batches: list[np.ndarray], bounds: Bounds = DEFAULT_BOUNDS) -> list[Segments]:
    """The versions after each step."""
    versions: list[Segments] = [()]
    for number, keys in enumerate(batches):
        batch = pa.table({"k": pa.array(keys, pa.int64())})
        versions.append(apply_batch(versions[-1], batch, PLAN, directory, f"op-p0-s{number}", bounds)[0])
    return versions[1:]


def test_a_key_that_changed_in_many_steps_is_one_row(tmp_path: Path) -> None:
    for version in steps(tmp_path, [np.arange(100)] * 5):
        assert rows_held(version, PLAN) == 100
    assert rows_held((), PLAN) == 0


def test_few_rows_are_counted_exactly(tmp_path: Path) -> None:
    batches = [np.arange(number * 50, number * 50 + 200) for number in range(12)]
    for number, version in enumerate(steps(tmp_path, batches)):
        assert rows_held(version, PLAN) == 200 + 50 * number


@pytest.mark.parametrize("repeated", [0.0, 0.3, 0.9, 1.0])
def test_of_many_rows_the_share_that_is_repeated_is_found_from_some(tmp_path: Path, repeated: float) -> None:
    draw = np.random.default_rng(17)
    batches = [np.arange(100_000)]
    for number in range(1, 12):
        old, fresh = round(9_000 * repeated), 9_000 - round(9_000 * repeated)
        begin = 100_000 + number * 9_000
        batches.append(np.concatenate([draw.integers(0, 100_000, old), np.arange(begin, begin + fresh)]))
    for version in steps(tmp_path, batches):
        real, most = contents(version, PLAN).num_rows, sum(segment.rows for segment in version)
        assert rows_held(version, PLAN) == pytest.approx(real, rel=0.02)
        assert rows_held(version, PLAN) <= most


def test_rows_that_a_merge_has_reached_do_not_count_twice(tmp_path: Path) -> None:
    bounds = Bounds(fan_in=3, rate=0.5, budget=0.6, least_rows=64, pieces=16, piece_rows=1 << 19, base_runs=3)
    seen_merging = 0
    for version in steps(tmp_path, [np.arange(0, 40_000, 1 + number % 3) for number in range(9)], bounds):
        seen_merging += any(isinstance(block, Merge) for block in blocks_of(version))
        assert rows_held(version, PLAN) == pytest.approx(40_000, rel=0.02)
    assert seen_merging


def test_no_more_than_a_sample_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    take = row_count._Stretch.hashes_in

    def counting(self: row_count._Stretch, edges: np.ndarray) -> np.ndarray:
        looked_at.append(len(found := take(self, edges)))
        return found

    monkeypatch.setattr(row_count._Stretch, "hashes_in", counting)
    version = steps(tmp_path, [np.arange(200_000), np.arange(150_000)])[-1]
    assert rows_held(version, PLAN) == pytest.approx(200_000, rel=0.02)
    assert 0 < sum(looked_at) < 1.2 * row_count.SAMPLED
