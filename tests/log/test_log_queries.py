"""Questions to a log about its past, without Spark: the same rows as a full scan with a filter, and less is read."""

from __future__ import annotations

import itertools
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from random_logs import BEGIN, TIMES, RandomLog, scanned

import holdfast as hf
from holdfast.errors import ConfigError, DamagedError, InputError
from holdfast.log.format.frame import NO_TIME
from holdfast.log.query import choose
from holdfast.log.query.wanted import Bounds, Wanted, between, runs_of

SEEDS = 40


def numbers(table: pa.Table) -> list[int]:
    return sorted(table.column("n").to_pylist())


def test_a_table_has_the_rows_of_a_full_scan_with_a_filter(tmp_path: Path, extent: Any) -> None:
    cases = [(kind, seed) for kind in TIMES for seed in range(SEEDS)]
    for kind, seed in extent.of(cases, keep=1, per=lambda case: case[0]):
        made = RandomLog(tmp_path / f"{kind} {seed}", f"{kind} {seed}", kind)
        made.fill(appends=30)
        log = hf.Log(made.path)
        for _ in range(10):
            since, until = made.stretch()
            found, expected = numbers(log.table(since, until)), scanned(made.path, since, until)
            assert found == expected, f"{kind}, seed {seed}, from {since} to {until}"


def test_a_table_from_a_position_has_what_a_reader_gives(tmp_path: Path) -> None:
    for seed in range(5):
        made = RandomLog(tmp_path / str(seed), f"position {seed}", "appended")
        made.fill(appends=25)
        log = hf.Log(made.path)
        start = {p: made.dice.randint(log.bounds(p).low, log.bounds(p).end) for p in range(log.partitions)}
        assert log.table(position=start).equals(log.reader(start).read_all()), f"seed {seed}, from {start}"


def test_pruning_leaves_out_no_position_that_can_be_wanted() -> None:
    for seed in range(300):
        dice = random.Random(seed)
        rows = [dice.choice([None, *range(20)]) for _ in range(dice.randrange(40))]
        pieces, at = [], 0
        while at < len(rows):
            end = min(len(rows), at + dice.randrange(1, 5))
            times = [time for time in rows[at:end] if time is not None]
            pieces.append(Bounds(at, end, min(times, default=NO_TIME), max(times, default=NO_TIME)))
            at = end
        start, behind = sorted(dice.randrange(len(rows) + 1) for _ in range(2))
        wanted = Wanted(dice.choice([None, *range(20)]), dice.choice([None, *range(20)]))
        runs = runs_of(wanted, pieces, start, behind)
        inside = {p for first, last in runs for p in range(first, last)}
        assert all(first < last for first, last in runs), f"seed {seed}"
        assert all(a[1] < b[0] for a, b in itertools.pairwise(runs)), f"seed {seed}: neighbours are one"
        assert inside <= set(range(start, behind)), f"seed {seed}"
        for position in range(start, behind):
            time = rows[position]
            is_wanted = not wanted.is_timed or (
                time is not None
                and (wanted.since is None or time >= wanted.since)
                and (wanted.until is None or time < wanted.until)
            )
            assert not is_wanted or position in inside, f"seed {seed}, position {position}"


@pytest.fixture
def minutes(tmp_path: Path) -> Path:
    """A hundred segments of a minute each, the older half merged, ten to a file."""
    path = tmp_path / "minutes"
    with hf.Log(path, segment_bytes=1, upkeep_every=None) as log:
        for minute in range(100):
            log.append([{"n": 10 * minute + k} for k in range(10)], time=BEGIN + timedelta(minutes=minute))
            if minute < 50 and minute % 10 == 9:
                log.close()
                log = hf.Log(path, segment_bytes=1, upkeep_every=None)
                merged = log.compact(1)
                assert merged.after
    log.close()
    return path


def test_only_segments_that_can_have_the_rows_are_read(
    minutes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = hf.Log(minutes)
    since, until = BEGIN + timedelta(minutes=70), BEGIN + timedelta(minutes=73)
    found = log.choose(between(since, until))
    assert len(found.chosen) == 3 < found.segments
    read = []
    original = choose.segments.read_range
    monkeypatch.setattr(
        choose.segments,
        "read_range",
        lambda where, columns: read.append(where.path) or original(where, columns),
    )
    assert numbers(log.table(since, until)) == list(range(700, 730))
    assert len(read) == 3
    assert len(log.choose(Wanted(start={0: 990})).chosen) == 1


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append([{"n": 1, "word": "a", "x": 0.5}])
        assert log.table(columns=["x", "n"]).to_pylist() == [{"x": 0.5, "n": 1}]
        with pytest.raises(ConfigError, match="no column 'y'") as told:
            log.table(columns=["y"])
        assert "n, word, x" in str(told.value.cure)


def test_rows_that_do_not_count_never_appear(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log", segment_bytes=1, upkeep_every=None) as log:
        log.append([{"n": 1}], epoch=1)
        log.withdraw_after(0)
        log.append([{"n": 2}], epoch=1)
        log.seal_epoch(1)
        log.append([{"n": 3}], epoch=2)
        assert numbers(log.table()) == numbers(log.table(position=0)) == [2]
        log.seal_epoch(2)
        assert numbers(log.table()) == [2, 3]
        log.compact()
        assert numbers(log.table()) == [2, 3]
        log.trim(2)
        assert numbers(log.table(BEGIN - timedelta(days=1), None)) == [3]
        with pytest.raises(InputError, match=r"position 0 to 2 .* were trimmed \(trimmed by hand\)"):
            log.table(position=0)


def test_what_is_no_stretch_is_refused(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append([{"n": 1}])
        for wrong in (
            (BEGIN, BEGIN - timedelta(1)),
            ("yesterday", None),
            (True, None),
            (1e15, None),
            (float("nan"), None),
        ):
            with pytest.raises(ConfigError):
                log.table(*wrong)
        for position in (2, -1, {1: 0}, "now", True):
            with pytest.raises(ConfigError):
                log.table(position=position)  # type: ignore[arg-type]
        assert log.table(BEGIN, BEGIN).num_rows == 0


def test_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append([{"n": 1}], time=BEGIN)
        naive = BEGIN.replace(tzinfo=None)
        assert numbers(log.table(naive, naive + timedelta(seconds=1))) == [1]
        assert numbers(log.table(BEGIN.timestamp(), BEGIN.timestamp() + 1)) == [1]
        assert numbers(log.table(BEGIN + timedelta(microseconds=1))) == []
        assert numbers(log.table(datetime.min, datetime.max.replace(tzinfo=UTC))) == [1]


def test_a_merge_between_looking_and_reading_is_noticed(
    minutes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, original = hf.Log(minutes), choose.read
    merges = []

    def merge_first(*arguments: Any) -> Any:
        if not merges:
            with hf.Log(minutes, upkeep_every=None) as other:
                merges.append(other.compact())
        return original(*arguments)

    monkeypatch.setattr("holdfast.log.query.verbs.choosing.read", merge_first)
    assert numbers(log.table()) == list(range(1000))
    assert merges[0].before > 40


def test_a_lost_or_wrong_index_changes_nothing(minutes: Path) -> None:
    since, until = BEGIN + timedelta(minutes=60), BEGIN + timedelta(minutes=90)
    for path in (minutes / "p00000").glob("*.index"):
        path.write_bytes(b"nonsense")
    assert numbers(hf.Log(minutes).table(since, until)) == list(range(600, 900))


def test_damage_is_told(minutes: Path) -> None:
    parquet = min((minutes / "p00000").glob("*.parquet"))
    data = bytearray(parquet.read_bytes())
    data[20] ^= 1
    parquet.write_bytes(data)
    with pytest.raises(DamagedError):
        hf.Log(minutes).table()
    assert numbers(hf.Log(minutes).table(BEGIN + timedelta(minutes=95))) == list(range(950, 1000))


def test_questions_while_it_is_written_merged_and_trimmed(tmp_path: Path) -> None:
    """Whoever asks meanwhile gets all rows of some moment: each once, none left out between them."""
    log = hf.Log(tmp_path / "log", segment_bytes=1, upkeep_every=None)
    log.append([{"n": 0}], time=BEGIN)
    done, asked = threading.Event(), 0

    def write() -> None:
        try:
            for n in range(1, 150):
                log.append([{"n": n}], time=BEGIN + timedelta(seconds=n))
                if n % 10 == 9:
                    log.compact(1 << 20)
                if n % 40 == 39:
                    log.trim(n // 2)
        finally:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    other = hf.Log(tmp_path / "log")
    while not done.is_set() or not asked:
        ended = done.is_set()
        found = numbers(other.table(BEGIN, None))
        assert found == list(range(found[0], found[-1] + 1)), found
        asked += 1
        if ended:
            break
    thread.join()
    log.close()
    assert numbers(other.table()) == list(range(59, 150))
