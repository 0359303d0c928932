"""Keyed maps of bytes: the newest row counts, and deleted keys vanish in merges with the oldest segments."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import HASH_COLUMN, key_hash
from holdfast.state.keyed.keyed_map import advance
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.keyed.opaque_values import PRESENT, OpaqueRows
from holdfast.state.keyed.segment import Place, Segment

MAP = OpaqueRows.of_keys(("k",), pa.schema([("k", pa.int64())]))
SPREAD = Bounds(fan_in=3, rate=2.0, budget=4.0, least_rows=16, pieces=8, piece_rows=50)


def rows_of(changes: dict[int, bytes | None]) -> pa.Table:
    keys = pa.array(list(changes), pa.int64())
    table = pa.Table.from_arrays(
        [pa.array(key_hash([keys])), keys, pa.array(list(changes.values()), pa.large_binary())],
        schema=MAP.state_schema,
    )
    return table.take(pa.array(np.argsort(as_int64(single(table.column(HASH_COLUMN))))))


def found_in(segments: tuple[Segment, ...], keys: int) -> dict[int, bytes]:
    wanted = rows_of(dict.fromkeys(range(keys), b"")).select([HASH_COLUMN, "k"])
    table = find_rows(segments, wanted, MAP).as_table()
    pairs = zip(table.column("k").to_pylist(), table.column("__hf_state").to_pylist(), strict=True)
    return {key: value for key, value in pairs if value is not None}


@pytest.mark.parametrize("seed", range(6))
def test_deleted_keys_never_come_back(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    known: dict[int, bytes] = {}
    segments: tuple[Segment, ...] = ()
    for step in range(120):
        changes: dict[int, bytes | None] = {
            key: None if chance.random() < 0.5 else b"%d" % step
            for key in chance.sample(range(200), chance.choice([1, 5, 60]))
        }
        segments = advance(segments, rows_of(changes), MAP, Place(tmp_path, f"s{step}"), PRESENT, SPREAD)
        for key, value in changes.items():
            known.pop(key, None)
            if value is not None:
                known[key] = value
        assert found_in(segments, 200) == known, f"seed {seed}, step {step}"


def test_merges_with_the_base_drop_deleted_keys(tmp_path: Path) -> None:
    segments: tuple[Segment, ...] = ()
    for step in range(400):
        mine = range(step * 10, step * 10 + 10)
        changes: dict[int, bytes | None] = dict.fromkeys(mine, b"x")
        changes |= dict.fromkeys(range(mine.start - 10, mine.start), None)
        segments = advance(segments, rows_of(changes), MAP, Place(tmp_path, f"s{step}"), PRESENT, SPREAD)
        assert sum(segment.rows for segment in segments) < 500
    assert set(found_in(segments, 4000)) == set(range(3990, 4000))
