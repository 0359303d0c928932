"""Merges spread over steps, against a plain dict: at every moment each key has its newest state.

Budgets are tiny, so that several merges are under way for most of the time; hashes collide on purpose; the version is
restored elsewhere, with and without the names that tell of merges, and dealt out again, all in the middle of merges.
"""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from keyed_steps import apply_batch, contents
from sampling import examples

from holdfast.errors import NoSpaceError
from holdfast.state.aggregates.aggregation import Aggregation, partial
from holdfast.state.columns.hashing import HASH_COLUMN, key_group, key_hash, partition_of_group
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed import keyed_map
from holdfast.state.keyed.keyed_map import dealt_out, ranges
from holdfast.state.keyed.layout import Merge, Run, blocks_of
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.keyed.segment import (
    OPENED,
    Place,
    Segment,
    Segments,
    open_segment,
    verify_segment,
    write_segment,
)

PLAN = Aggregation.plan(
    ("k",), (("n", "count", None), ("s", "sum", "v")), pa.schema({"k": pa.int64(), "v": pa.int64()})
)
BOUNDS = st.builds(
    Bounds,
    fan_in=st.integers(2, 5),
    rate=st.sampled_from([0.5, 1.0, 2.0]),
    budget=st.sampled_from([1.0, 2.0, 4.0]),
    least_rows=st.sampled_from([1, 3, 40]),
    pieces=st.sampled_from([2, 8, 100]),
    piece_rows=st.sampled_from([3, 20, 1000]),
    base_runs=st.integers(2, 4),
)
BATCHES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=25), min_size=4, max_size=25)
HASHES = st.sampled_from([0, 0, 1, 4, 20])
"""How many different hashes there are; 0: as many as there are keys."""
EVENTS = st.lists(
    st.sampled_from(["", "", "", "restored", "restored without names", "cold"]), min_size=25, max_size=25
)


def batch_of(keys: list[int], hashes: int) -> pa.Table:
    table = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64())})
    values = key_hash([table["k"]])
    if hashes:
        values = np.mod(values, hashes) * np.int64(2**60) - np.int64(2**62)
    return table.append_column(HASH_COLUMN, pa.array(values))


def check_version(version: Segments) -> None:
    for segment in version:
        verify_segment(segment.path, crc=segment.crc, size=segment.bytes)
        table = open_segment(segment.path)
        assert table.num_rows == segment.rows > 0
        assert (np.diff(table[HASH_COLUMN].to_numpy().astype(object)) >= 0).all()
        assert len(set(table["k"].to_pylist())) == segment.rows
    for block in blocks_of(version):
        for run in (block,) if isinstance(block, Run) else (*block.inputs, block.pieces):
            check_run(run)


def check_run(run: Run) -> None:
    ends = [(rows.first, rows.last) for rows in (OPENED.get(s, PLAN.state_schema) for s in run.segments)]
    assert all(older[1] < newer[0] for older, newer in pairwise(ends)), "pieces ascend without overlap"


def moved(version: Segments, directory: Path, *, names: bool) -> Segments:
    """The version as a restore from a checkpoint gives it, in another directory."""
    directory.mkdir()
    segments = []
    for i, old in enumerate(version):
        name = old.name if names else f"stored-{i}"
        path = directory / f"{name}.arrow"
        shutil.copyfile(old.path, path)
        segments.append(Segment(name, str(path), open_segment(path).num_rows, old.bytes, old.crc))
    return tuple(segments)


def counts(table: pa.Table) -> dict[int, tuple[int, int]]:
    rows = table.to_pylist()
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: (row["__hf_n.count"], int(row["__hf_s.sum"])) for row in rows}


def expected(model: Counter[int]) -> dict[int, tuple[int, int]]:
    return {key: (count, key * count) for key, count in model.items()}


@examples(120)
@given(BATCHES, BOUNDS, HASHES, EVENTS)
def test_every_key_has_its_newest_state_at_every_moment(
    batches: list[list[int]], bounds: Bounds, hashes: int, events: list[str]
) -> None:
    model: Counter[int] = Counter()
    version: Segments = ()
    merging = 0
    with TemporaryDirectory() as name:
        directory = Path(name) / "first"
        directory.mkdir()
        for step, keys in enumerate(batches):
            if events[step].startswith("restored"):
                directory = Path(name) / f"restored-{step}"
                version = moved(version, directory, names=events[step] == "restored")
            elif events[step] == "cold":
                OPENED.clear()
            batch = batch_of(keys, hashes)
            version, output = apply_batch(version, batch, PLAN, directory, f"s{step}", bounds=bounds)
            model.update(keys)
            assert {row["k"]: row["n"] for row in output.to_pylist()} == {key: model[key] for key in keys}
            check_version(version)
            assert counts(contents(version, PLAN)) == expected(model)
            everything = partial(PLAN, batch_of(list(range(62)), hashes))
            assert counts(find_rows(version, everything, PLAN).as_table()) == expected(model)
            merging += any(isinstance(block, Merge) for block in blocks_of(version))
    event(f"steps with a merge under way: {merging // 5 * 5} or more")


@examples(60)
@given(BATCHES, BOUNDS, st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 7, 1000]))
def test_a_state_is_dealt_out_again_in_the_middle_of_merges(
    batches: list[list[int]], bounds: Bounds, old: int, new: int, piece_rows: int
) -> None:
    model: Counter[int] = Counter()
    versions: list[Segments] = [() for _ in range(old)]
    with TemporaryDirectory() as name:
        directory = Path(name)
        for step, keys in enumerate(batches):
            batch = batch_of(keys, 0)
            owner = partition_of_group(key_group(batch[HASH_COLUMN].to_numpy()), old)
            for p in range(old):
                part = batch.filter(pa.array(owner == p))
                versions[p], _ = apply_batch(
                    versions[p], part, PLAN, directory, f"p{p}-s{step}", bounds=bounds
                )
            model.update(keys)
        spread = [
            dealt_out(versions, p, new, PLAN, Place(directory, f"new-{p}"), Bounds(piece_rows=piece_rows))
            for p in range(new)
        ]
        found: dict[int, tuple[int, int]] = {}
        for p, version in enumerate(spread):
            check_version(version)
            assert len(blocks_of(version)) <= 1, "one run"
            assert all(segment.rows <= piece_rows for segment in version)
            table = contents(version, PLAN)
            assert (partition_of_group(key_group(table[HASH_COLUMN].to_numpy()), new) == p).all()
            found |= counts(table)
        assert found == expected(model)


def grown(directory: Path, bounds: Bounds, steps: int = 60) -> tuple[Segments, list[Segments]]:
    """A version after many steps, and all before it."""
    rng = np.random.default_rng(1)
    version: Segments = ()
    history = []
    for step in range(steps):
        history.append(version)
        batch = batch_of(rng.integers(0, 3000, 200).tolist(), 0)
        version, _ = apply_batch(version, batch, PLAN, directory, f"s{step}", bounds=bounds)
    return version, history


SPREAD = Bounds(fan_in=4, rate=2.0, budget=6.0, least_rows=64, pieces=16)


def test_a_large_merge_is_spread_over_steps(tmp_path: Path) -> None:
    last, history = grown(tmp_path, SPREAD)
    versions = [*history, last]
    for before, after in pairwise(versions):
        new = set(after) - set(before)
        assert sum(segment.rows for segment in new) <= 200 + SPREAD.allowance(200)
        assert len(blocks_of(after)) <= 20
    under_way = [v for v in versions if any(isinstance(b, Merge) for b in blocks_of(v))]
    assert len(under_way) > 20
    assert counts(contents(last, PLAN)) == counts(contents(merge_of(versions[-1], tmp_path), PLAN))


def merge_of(version: Segments, directory: Path) -> Segments:
    return dealt_out([version], 0, 1, PLAN, Place(directory, "whole"))


def test_inputs_go_as_soon_as_they_are_used_up(tmp_path: Path) -> None:
    last, history = grown(tmp_path, SPREAD)
    merges = [b for v in [*history, last] for b in blocks_of(v) if isinstance(b, Merge)]
    for merge in merges:
        reached = OPENED.get(merge.pieces.segments[-1], PLAN.state_schema).last
        inputs = [segment for run in merge.inputs for segment in run.segments]
        assert all(OPENED.get(segment, PLAN.state_schema).last > reached for segment in inputs)


def test_a_repeated_step_gives_the_same_bytes(tmp_path: Path) -> None:
    version, _ = grown(tmp_path, SPREAD, steps=43)
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
    batch = batch_of(list(range(100)), 0)
    first, _ = apply_batch(version, batch, PLAN, tmp_path / "first", "again", bounds=SPREAD)
    second, _ = apply_batch(version, batch, PLAN, tmp_path / "second", "again", bounds=SPREAD)
    assert [(s.name, s.rows, s.crc) for s in first] == [(s.name, s.rows, s.crc) for s in second]
    assert len(list((tmp_path / "first").iterdir())) >= 2


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version, _ = grown(tmp_path, SPREAD, steps=43)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    written: list[Any] = []

    def second_fails(directory: Path, name: str, table: pa.Table) -> Segment:
        if written:
            raise NoSpaceError("no space left.")
        written.append(name)
        return write_segment(directory, name, table)

    monkeypatch.setattr(keyed_map, "write_segment", second_fails)
    with pytest.raises(NoSpaceError):
        apply_batch(version, batch_of(list(range(100)), 0), PLAN, elsewhere, "s", bounds=SPREAD)
    assert written
    assert list(elsewhere.iterdir()) == []


@examples(200)
@given(
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 6), min_size=1, max_size=40), min_size=1, max_size=6),
    st.integers(1, 30),
    st.none() | st.integers(1, 100),
)  # fmt: skip
def test_ranges_cover_everything_once_and_keep_equal_hashes_together(
    stored: list[list[int]], rows: int, limit: int | None
) -> None:
    sources = [SortedRows(pa.table({HASH_COLUMN: np.sort(np.array(s, dtype=np.int64))})) for s in stored]
    total, reached, taken = sum(map(len, stored)), -(2**63) - 1, 0
    for slices in ranges(sources, rows, None, limit):
        hashes = np.concatenate([table[HASH_COLUMN].to_numpy() for table in slices.tables])
        assert reached < hashes.min()
        reached = slices.reached
        assert reached == hashes.max()
        assert len(hashes) <= rows or len(set(hashes.tolist())) == 1
        taken += len(hashes)
        assert taken == sum(value <= reached for s in stored for value in s), "nothing is left below"
    if limit is None or limit >= total:
        assert taken == total
    else:
        assert taken > 0
