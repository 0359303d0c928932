"""Mapped segments are kept, but not too many, not for long after their file has gone, and never mixed up."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from keyed_steps import apply_batch, contents

from holdfast.errors import StateError, StoreError
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.keyed.segment import OPENED, OpenedSegments, Segment, Segments, write_segment

TABLE = pa.table({HASH_COLUMN: [1, 2, 3], "k": [1, 2, 3]})


def written(directory: Path, name: str, table: pa.Table = TABLE) -> Segment:
    return write_segment(directory, name, table)


def test_a_segment_is_mapped_once(tmp_path: Path) -> None:
    cache, segment = OpenedSegments(), written(tmp_path, "a")
    rows = cache.get(segment, TABLE.schema)
    Path(segment.path).unlink()
    assert cache.get(segment, pa.schema(TABLE.schema)) is rows
    cache.forget([segment])
    with pytest.raises(StoreError, match="not there"):
        cache.get(segment, TABLE.schema)


def test_other_bytes_under_the_same_path_are_another_segment(tmp_path: Path) -> None:
    cache = OpenedSegments()
    assert cache.get(written(tmp_path, "a"), TABLE.schema).last == 3
    assert cache.get(written(tmp_path, "a", TABLE.slice(0, 2)), TABLE.schema).last == 2


def test_the_one_unused_for_longest_goes_first(tmp_path: Path) -> None:
    cache = OpenedSegments(most=2)
    a, b, c = (written(tmp_path, name) for name in "abc")
    first = cache.get(a, TABLE.schema)
    cache.get(b, TABLE.schema)
    cache.get(a, TABLE.schema)
    cache.get(c, TABLE.schema)
    assert len(cache) == 2
    assert cache.get(a, TABLE.schema) is first


def test_vanished_files_are_forgotten_within_a_few_steps(tmp_path: Path) -> None:
    cache = OpenedSegments()
    segments = [written(tmp_path, f"s{i}") for i in range(150)]
    for segment in segments:
        cache.get(segment, TABLE.schema)
    for segment in segments[40:]:
        Path(segment.path).unlink()
    for _ in range(4):
        cache.forget_vanished()
    assert len(cache) == 40
    cache.clear()
    assert len(cache) == 0


def test_a_segment_of_another_operator_is_refused_again_and_again(tmp_path: Path) -> None:
    cache, segment = OpenedSegments(), written(tmp_path, "a")
    other = pa.schema({HASH_COLUMN: pa.int64(), "k": pa.string()})
    for _ in range(2):
        with pytest.raises(StateError, match="the operator wants"):
            cache.get(segment, other)
        cache.get(segment, TABLE.schema)


def test_a_step_forgets_what_it_dropped(tmp_path: Path) -> None:
    OPENED.clear()
    plan = Aggregation.plan(("k",), (("n", "count", None),), pa.schema({"k": pa.int64()}))
    bounds = Bounds(fan_in=3, least_rows=64, piece_rows=50)
    version: Segments = ()
    for step in range(40):
        version, _ = apply_batch(
            version, pa.table({"k": np.arange(30) * step}), plan, tmp_path, f"s{step}", bounds=bounds
        )
        assert len(OPENED) <= len(version)
    OPENED.clear()
    assert contents(version, plan)["__hf_n.count"].to_numpy().sum() == 40 * 30


def test_threads_may_share_it(tmp_path: Path) -> None:
    cache = OpenedSegments(most=3)
    segments = [written(tmp_path, f"s{i}") for i in range(6)]
    wrong = []

    def work(offset: int) -> None:
        for i in range(300):
            rows = cache.get(segments[(i + offset) % 6], TABLE.schema)
            cache.forget_vanished()
            if len(rows) != 3:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(cache) <= 3
