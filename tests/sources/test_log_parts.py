"""How a stretch of a log is cut for tasks: between row groups, and by bytes where rows are wide."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.log.format import parquet_segment
from holdfast.log.log import Log
from holdfast.sources.logs import positions as cutting
from holdfast.sources.logs.positions import Positions, look


def a_log(path: Path, rows: int, *, appends: int = 50, tail: int = 0) -> Log:
    """`rows` in a Parquet segment, and some more in a tail."""
    each = rows // appends
    with Log(path, upkeep_every=None) as log:
        for first in range(0, rows, each):
            log.append(pa.table({"n": list(range(first, first + each)), "text": ["x" * 40] * each}))
    with Log(path, upkeep_every=None) as log:
        log.compact()
    with Log(path, upkeep_every=None) as log:
        if tail:
            log.append(pa.table({"n": list(range(rows, rows + tail)), "text": ["y"] * tail}))
    return Log(path)


def numbers(part: Positions) -> list[int]:
    return [n for batch in part.read() for n in batch.rows.column("n").to_pylist()]


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_segment, "GROUP_BYTES", 2000)


@pytest.mark.usefixtures("small_groups")
def test_a_row_group_lies_in_one_part_and_all_rows_come_once_in_order(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log", 1000, tail=300)
    starts = {at for where in log.ranges(0, 1000) for at in where.group_starts()}
    assert len(starts) > 10
    dice = random.Random(7)
    for _ in range(60):
        start = dice.randrange(1300)
        end = dice.randrange(start, 1300) + 1
        parts = look(log, 0, start, end).cut(dice.randrange(1, 40))
        assert [n for part in parts for n in numbers(part)] == list(range(start, end))
        inner = [part.start for part in parts[1:] if part.start < 1000]
        assert set(inner) <= starts
    assert len(look(log, 0, 0, 1300).cut(8)) == 8


@pytest.mark.usefixtures("small_groups")
def test_wide_rows_are_cut_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(tmp_path / "log", 1000)
    whole = look(log, 0, 0, 1000)
    assert len(whole.for_tasks()) == 1
    held = sum(where.held_bytes for where in whole.ranges)
    assert held == sum(Path(where.path).stat().st_size for where in whole.ranges)
    monkeypatch.setattr(cutting, "PART_BYTES", held // 4)
    assert len(whole.for_tasks()) == 4
    monkeypatch.setattr(cutting, "PART_ROWS", 100)
    assert len(whole.for_tasks()) == 10


def test_rows_of_a_segment_that_was_merged_meanwhile_are_cut_and_found(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log", 1000, tail=300)
    before = look(log, 0, 0, 1300)
    with Log(tmp_path / "log", upkeep_every=None) as writer:
        writer.append([{"n": 1300, "text": "z"}])
        writer.compact()
    assert not all(Path(where.path).exists() for where in before.ranges)
    assert [n for part in before.cut(5) for n in numbers(part)] == list(range(1300))
