"""A partition's versions against a plain dict: look-ups, merges, collisions, running values, repartitioning."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyed_steps import apply_batch, apply_partial, contents
from sampling import examples

from holdfast import durable
from holdfast.errors import DamagedError, NoSpaceError, StateError, StoreError
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.logic import by_position
from holdfast.state.aggregates.aggregation import Aggregation, partial
from holdfast.state.columns.hashing import HASH_COLUMN, key_group, key_hash, partition_of_group
from holdfast.state.keyed.expiry import of_lives
from holdfast.state.keyed.keyed_map import advance, dealt_out
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.keyed.segment import Place, Segments, open_segment, verify_segment, write_segment

SCHEMA = pa.schema(
    {"a": pa.string(), "b": pa.float64(), "i": pa.int64(), "f": pa.float64(), "d": pa.decimal128(20, 2), "t": pa.string(),
     "row": pa.int64()}
)  # fmt: skip
BY = ("a", "b")
AGGREGATES = (
    ("n", "count", None),
    ("ni", "count", "i"),
    ("si", "sum", "i"),
    ("ai", "avg", "i"),
    ("sf", "sum", "f"),
    ("mf", "min", "f"),
    ("xf", "max", "f"),
    ("sd", "sum", "d"),
    ("xt", "max", "t"),
    ("mi", "min", "i"),
)
PLAN = Aggregation.plan(BY, AGGREGATES, SCHEMA)

Row = dict[str, Any]
ROWS = st.fixed_dictionaries(
    {
        "a": st.sampled_from([None, "", "x", "y", "longer than eight"]),
        "b": st.sampled_from([None, 0.0, -0.0, math.nan, 1.5]),
        "i": st.none() | st.integers(-(2**40), 2**40),
        "f": st.none() | st.integers(-1000, 1000).map(lambda n: n / 8),
        "d": st.none() | st.integers(-(10**15), 10**15).map(lambda n: Decimal(n).scaleb(-2)),
        "t": st.none() | st.text(max_size=3),
    }
)
BATCHES = st.lists(st.lists(ROWS, max_size=12), max_size=6)
BOUNDS = st.builds(
    Bounds,
    fan_in=st.integers(2, 4),
    rate=st.sampled_from([1.0, 2.0, 4.0]),
    budget=st.sampled_from([1.0, 3.0, 8.0]),
    least_rows=st.sampled_from([1, 5, 100, 1000]),
    pieces=st.integers(1, 8),
    piece_rows=st.sampled_from([2, 7, 1000]),
    base_runs=st.integers(2, 4),
)
HASHES = st.sampled_from([0, 1, 3])
"""How many different hashes there are; 0: as many as there are keys."""


def table_of(rows: list[Row], start: int, hashes: int) -> pa.Table:
    numbered = [{**row, "row": start + i} for i, row in enumerate(rows)]
    table = pa.Table.from_pylist(numbered, SCHEMA)
    values = key_hash([table[name] for name in BY])
    return table.append_column(HASH_COLUMN, pa.array(np.mod(values, hashes) if hashes else values))


def key_of(row: Row) -> tuple[Any, Any]:
    b = row["b"]
    return row["a"], "nan" if b is not None and math.isnan(b) else b


def known(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def naive(rows: list[Row]) -> dict[str, Any]:
    """The aggregates of one key's rows, in plain Python."""
    i, f, d, t = (known(rows, name) for name in "ifdt")
    return {
        "n": len(rows),
        "ni": len(i),
        "si": sum(i) if i else None,
        "ai": sum(i) / len(i) if i else None,
        "sf": math.fsum(f) if f else None,
        "mf": min(f, default=None),
        "xf": max(f, default=None),
        "sd": sum(d) if d else None,
        "xt": max(t, key=lambda s: s.encode(), default=None),
        "mi": min(i, default=None),
    }


def results(output: pa.Table) -> list[tuple[Any, dict[str, Any]]]:
    names = [name for name, _, _ in AGGREGATES]
    return [(key_of(row), {name: row[name] for name in names}) for row in output.to_pylist()]


@examples(120)
@given(BATCHES, BOUNDS, HASHES)
def test_changes_are_what_a_dict_says(batches: list[list[Row]], bounds: Bounds, hashes: int) -> None:
    model: dict[Any, list[Row]] = {}
    version: Segments = ()
    with TemporaryDirectory() as name:
        for step, rows in enumerate(batches):
            batch = table_of(rows, 0, hashes)
            version, output = apply_batch(version, batch, PLAN, Path(name), f"agg-0-{step}-0", bounds=bounds)
            for row in rows:
                model.setdefault(key_of(row), []).append(row)
            assert output.schema == PLAN.output_schema
            touched = {key_of(row) for row in rows}
            assert len(output) == len(touched)
            assert dict(results(output)) == {key: naive(model[key]) for key in touched}
            check_segments(version)
        whole = contents(version, PLAN)
        assert {key_of(row) for row in whole.to_pylist()} == set(model)
        assert len(whole) == len(model)


def check_segments(version: Segments) -> None:
    for segment in version:
        verify_segment(segment.path, crc=segment.crc, size=segment.bytes)
        table = open_segment(segment.path)
        assert table.num_rows == segment.rows
        assert (np.diff(table[HASH_COLUMN].to_numpy().astype(object)) >= 0).all()


@examples(120)
@given(BATCHES, BOUNDS, HASHES, st.randoms(use_true_random=False))
def test_each_row_gets_the_values_after_it(
    batches: list[list[Row]], bounds: Bounds, hashes: int, random: Any
) -> None:
    model: dict[Any, list[Row]] = {}
    version: Segments = ()
    number = 0
    with TemporaryDirectory() as name:
        for step, rows in enumerate(batches):
            batch = table_of(rows, number, hashes)
            order = list(range(len(rows)))
            random.shuffle(order)
            places = (np.zeros(len(rows), dtype=np.int64),) * 2
            for column, values in zip(POSITION_COLUMNS, (*places, batch["row"].to_numpy()), strict=True):
                batch = batch.append_column(column, pa.array(values))
            ordered = by_position(batch.take(pa.array(order, pa.int64())))
            assert ordered["row"].to_pylist() == list(range(number, number + len(rows)))
            output, changed = of_lives(PLAN, version, ordered, np.full(len(rows), 0), None, each=True)
            version = advance(version, changed, PLAN, Place(Path(name), f"agg-0-{step}-0"), bounds=bounds)
            expected = []
            for row in rows:
                model.setdefault(key_of(row), []).append(row)
                expected.append((key_of(row), naive(model[key_of(row)])))
            assert results(output) == expected
            number += len(rows)
        assert len(contents(version, PLAN)) == len(model)


@examples(60)
@given(st.lists(ROWS, max_size=30), st.lists(st.integers(0, 30), max_size=4), HASHES, st.integers(1, 4))
def test_the_state_depends_neither_on_cuts_nor_on_pieces(
    rows: list[Row], cuts: list[int], hashes: int, pieces: int
) -> None:
    batch = table_of(rows, 0, hashes)
    with TemporaryDirectory() as name:
        whole, _ = apply_batch((), batch, PLAN, Path(name), "whole")
        bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        version: Segments = ()
        for step in range(len(bounds) - 1):
            part = batch[bounds[step] : bounds[step + 1]]
            partials = [
                partial(PLAN, part.take(pa.array(np.arange(i, len(part), pieces)))) for i in range(pieces)
            ]
            version, _ = apply_partial(version, partials, PLAN, Path(name), f"cut-{step}")
        mine, other = (dict(states(contents(v, PLAN))) for v in (whole, version))
        assert mine == other


def states(table: pa.Table) -> list[tuple[Any, Any]]:
    return [(key_of(row), {k: v for k, v in row.items() if k not in BY}) for row in table.to_pylist()]


@pytest.mark.parametrize(("old", "new"), [(1, 4), (4, 1), (3, 5), (128, 2)])
@pytest.mark.fault("I07")
def test_a_state_can_be_spread_over_another_number_of_partitions(tmp_path: Path, old: int, new: int) -> None:
    plan = Aggregation.plan(("k",), (("s", "sum", "v"),), pa.schema({"k": pa.int64(), "v": pa.int64()}))
    versions: list[Segments] = [() for _ in range(old)]
    for step in range(3):
        batch = pa.table({"k": np.arange(200) * (step + 1), "v": np.arange(200)})
        owner = partition_of_group(key_group(key_hash([batch["k"]])), old)
        for p in range(old):
            part = batch.filter(pa.array(owner == p))
            versions[p], _ = apply_batch(versions[p], part, plan, tmp_path, f"agg-{p}-{step}")
    spread = [dealt_out(versions, p, new, plan, Place(tmp_path, f"new-{p}")) for p in range(new)]
    rows = [row for version in spread for row in contents(version, plan).to_pylist()]
    expected = [row for version in versions for row in contents(version, plan).to_pylist()]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    for p, version in enumerate(spread):
        groups = key_group(contents(version, plan)[HASH_COLUMN].to_numpy())
        assert (partition_of_group(groups, new) == p).all()


def test_a_small_batch_leaves_a_large_base_alone(tmp_path: Path) -> None:
    plan = Aggregation.plan(("k",), (("n", "count", None),), pa.schema({"k": pa.int64()}))
    version, _ = apply_batch((), pa.table({"k": np.arange(20_000)}), plan, tmp_path, "base")
    base = version[0]
    rng = np.random.default_rng(0)
    for step in range(40):
        before = set(version)
        version, _ = apply_batch(
            version, pa.table({"k": rng.integers(0, 20_000, 100)}), plan, tmp_path, f"s{step}"
        )
        assert version[0] == base
        assert len(version) <= 8
        assert 1 <= len(set(version) - before) <= 2
    assert contents(version, plan)["__hf_n.count"].to_numpy().sum() == 20_000 + 4_000


def test_an_empty_batch_changes_nothing(tmp_path: Path) -> None:
    version, summed = apply_batch((), table_of([], 0, 0), PLAN, tmp_path, "none")
    assert version == ()
    each, changed = of_lives(PLAN, (), table_of([], 0, 0), np.full(0, 0), None, each=True)
    assert advance((), changed, PLAN, Place(tmp_path, "none")) == ()
    for output in (summed, each):
        assert output.num_rows == 0
        assert output.schema == PLAN.output_schema


# --- segments -------------------------------------------------------------------------------------------------------


@pytest.mark.fault("C01", "C11")
def test_every_flipped_byte_of_a_segment_is_found(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, "agg-0-1-0", pa.table({HASH_COLUMN: [1, 2], "k": ["a", None]}))
    data = Path(segment.path).read_bytes()
    assert len(data) == segment.bytes
    for at in range(0, len(data), 7):
        Path(segment.path).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedError, match="checksum"):
            verify_segment(segment.path, crc=segment.crc, size=segment.bytes)
    Path(segment.path).write_bytes(data[:-1])
    with pytest.raises(DamagedError, match="bytes instead of"):
        verify_segment(segment.path, crc=segment.crc, size=segment.bytes)
    Path(segment.path).write_bytes(b"ARROW1" + b"\0" * 50)
    with pytest.raises(DamagedError):
        open_segment(segment.path)
    Path(segment.path).unlink()
    with pytest.raises(StoreError, match="not there"):
        open_segment(segment.path)
    with pytest.raises(DamagedError, match="not there"):
        verify_segment(segment.path, crc=0, size=0)


def test_a_segment_is_mapped_not_copied(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, "big", pa.table({HASH_COLUMN: np.arange(100_000)}))
    before = pa.total_allocated_bytes()
    table = open_segment(segment.path)
    table[HASH_COLUMN].to_numpy()
    assert pa.total_allocated_bytes() - before < 10_000
    assert [p.name for p in tmp_path.iterdir()] == ["big.arrow"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int, data: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write_all", no_space)
    with pytest.raises(NoSpaceError):
        write_segment(tmp_path, "x", pa.table({HASH_COLUMN: [1]}))
    assert list(tmp_path.iterdir()) == []


def test_unsafe_names_and_foreign_segments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="name of a segment"):
        write_segment(tmp_path, "../x", pa.table({HASH_COLUMN: [1]}))
    foreign = write_segment(tmp_path, "x", pa.table({HASH_COLUMN: [1]}))
    with pytest.raises(StateError, match="the operator wants"):
        contents((foreign,), PLAN)
