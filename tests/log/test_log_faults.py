"""Disks that are full or fail, clocks that jump, indexes that lie, writers that were replaced: nothing is lost, doubled or misread."""

from __future__ import annotations

import errno
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import forked
import pytest
from faults import fired
from small_disk import enter_namespace, mount_small, try_namespace

import holdfast as hf
from holdfast import durable, failpoints
from holdfast.clock import ManualClock
from holdfast.errors import FencedError, NoSpaceError, StoreError
from holdfast.log import segments
from holdfast.log.format import frame as frames
from holdfast.log.format.frame import NO_EPOCH, NO_TIME, Frame, Kind
from holdfast.log.format.index import Index, Place
from holdfast.log.format.names import parse
from holdfast.log.machines.retention import Holder, Keep, SegmentFacts, decide
from holdfast.log.reader import TrimmedError
from holdfast.testing.log_interface import SCHEMA, numbers, some

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def disarmed() -> Any:
    yield
    failpoints.disarm()


def opened(root: Path, **settings: Any) -> hf.Log:
    return hf.Log(root / "log", **{"upkeep_every": None, "schema": SCHEMA, **settings})


# --- no space ---


def fill_a_small_disk(root: Path) -> None:
    """Body of a child: append until the disk is full, see that nothing is half there, make room, go on."""
    report: dict[str, Any] = {}
    try:
        enter_namespace()
        small = root / "small"
        mount_small(small, "2m")
        (small / "ballast").write_bytes(bytes(1800 << 10))
        log = opened(small, segment_bytes=200_000)
        writer = log.writer("w", window=8)
        late = log.reader()  # a consumer that is down: it reads when all is over
        sequence = refused = 0
        under_way: list[tuple[int, Any]] = []
        while sequence < 400:
            try:
                under_way.append(
                    (sequence + 1, writer.append(some(50 * sequence, 50), sequence=sequence + 1))
                )
                sequence += 1
                if sequence % 8 == 0:
                    for _, each in under_way:
                        each.result()
                    under_way.clear()
            except NoSpaceError:
                refused += 1
                stored = writer.last_sequence
                assert numbers(log.reader()) == list(range(50 * stored)), "what was refused is there"
                assert numbers(opened(small).reader()) == list(range(50 * stored))
                under_way.clear()
                sequence = stored
                if refused == 5:
                    (small / "ballast").unlink()
        writer.flush()
        report = {"refused": refused, "rows": numbers(late) == list(range(20000))}
        log.close()
        report["again"] = numbers(opened(small).reader()) == list(range(20000))
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"
    (root / "report").write_text(json.dumps(report))
    os._exit(0)


@pytest.mark.fault("S08")
def test_a_full_disk_refuses_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    tried = tmp_path / "mounts"
    forked.finish(forked.start(try_namespace, tried), 30)
    if tried.read_text():
        pytest.skip(f"needs a private mount namespace with a small tmpfs: {tried.read_text()}")
    forked.finish(forked.start(fill_a_small_disk, tmp_path), 120)
    report = json.loads((tmp_path / "report").read_text())
    assert "error" not in report, report
    assert report["refused"] >= 5
    assert report["rows"]
    assert report["again"]
    fired("disk full")


@pytest.mark.parametrize("where", ["log.write", "log.written", "log.tail.made"])
def test_no_space_at_a_failpoint_stores_nothing_and_the_next_append_goes_on(
    tmp_path: Path, where: str
) -> None:
    log = opened(tmp_path, segment_bytes=1500)
    log.append(some(0, 5))
    failpoints.arm(f"{where}=enospc@2")
    stored, refused = list(range(5)), 0
    for start in range(5, 50, 5):
        try:
            log.append(some(start, 5))
            stored += range(start, start + 5)
        except NoSpaceError:
            refused += 1
    assert failpoints.fired()[where] == 1
    assert refused == (
        where != "log.tail.made"
    )  # an acknowledged append stays one if no new tail can be made behind it
    assert numbers(log.reader()) == stored
    log.close()
    assert numbers(opened(tmp_path).reader()) == stored


@pytest.mark.fault("S14")
def test_if_one_append_fails_none_behind_it_is_stored(tmp_path: Path) -> None:
    """Those that were on their way fail too, and so does the next one, until the writer knows."""
    log = opened(tmp_path)
    writer = log.writer("w", window=4)
    failpoints.arm("log.write=enospc@3")
    pending: list[Any] = []
    with pytest.raises(NoSpaceError):
        for n in range(1, 200):
            pending.append(writer.append(some(n, 1), sequence=n))
    outcomes = []
    for each in pending:
        try:
            outcomes.append(each.result().sequence)
        except NoSpaceError:
            outcomes.append(0)
    stored = [each for each in outcomes if each]
    assert 0 < len(stored) < len(outcomes)
    assert outcomes == stored + [0] * (len(outcomes) - len(stored))
    assert numbers(log.reader()) == stored
    assert writer.last_sequence == len(stored)
    for n in range(1, 201):
        writer.append(some(n, 1), sequence=n)
    writer.flush()
    assert numbers(log.reader()) == list(range(1, 201))
    log.close()


# --- a disk that fails otherwise ---


@pytest.mark.parametrize("where", ["log.write", "log.written", "log.synced"])
@pytest.mark.fault("S02", "K12")
def test_after_a_failure_nobody_trusts_the_writer_and_the_outcome_is_looked_up(
    tmp_path: Path, where: str
) -> None:
    log = opened(tmp_path)
    writer = log.writer("w")
    writer.append(some(0, 2), sequence=1).result()
    failpoints.arm(f"{where}=eio")
    with pytest.raises(StoreError, match="nobody knows"):
        writer.append(some(2, 2), sequence=2).result()
    with pytest.raises(StoreError, match="nobody knows"):
        writer.append(some(4, 2), sequence=3)
    log.close()
    log = opened(tmp_path)
    writer = log.writer("w")
    assert writer.last_sequence == 1  # what was not known to be durable was cut off
    for sequence, start in ((1, 0), (2, 2), (3, 4)):
        writer.append(some(start, 2), sequence=sequence)
    writer.flush()
    assert numbers(log.reader()) == list(range(6))
    log.close()


@pytest.mark.fault("S02")
def test_a_failed_fsync_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.append(some(0, 2))
    calls = []

    def fail(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.ENOSPC, "no space while flushing")

    monkeypatch.setattr(durable, "sync_data", fail)
    for _ in range(3):
        with pytest.raises(StoreError, match="nobody knows"):
            log.append(some(2, 2))
    assert len(calls) == 1
    monkeypatch.undo()
    log.close()
    with opened(tmp_path) as log:
        assert numbers(log.reader()) == [0, 1]


def test_an_interrupt_stays_one_and_stores_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    log.append(some(0, 2))

    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(durable, "sync_data", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.append(some(2, 2))
    monkeypatch.undo()
    with pytest.raises(StoreError, match="nobody knows"):
        log.append(some(2, 2))
    log.close()
    with opened(tmp_path) as log:
        assert log.append(some(2, 2)).position == 2
        assert numbers(log.reader()) == [0, 1, 2, 3]


# --- writers that were replaced ---


def zombie_frame(log: hf.Log, position: int, rows: Any) -> list[bytes]:
    """What an owner that does not know yet that it was replaced would write next."""
    appender = log.owner().appenders[0]
    payload = rows.serialize()
    frame = Frame(
        Kind.ROWS, log.facts.id_bytes, 0, position, rows.num_rows, int(appender._lease.token), "append", 99,
        appender._tail.end, NO_EPOCH, 0, 0, 0, 0, payload.size, durable.checksum(memoryview(payload)),
    )  # fmt: skip
    assert appender.facts.time is None
    return [frames.pack(frame), payload.to_pybytes()]


@pytest.mark.fault("S13", "O10")
def test_what_a_replaced_writer_still_writes_never_counts(tmp_path: Path) -> None:
    import pyarrow as pa

    old = opened(tmp_path)
    old.append(some(0, 2))
    reader = opened(tmp_path).reader()
    assert numbers(reader) == [0, 1]
    written = zombie_frame(old, 2, pa.RecordBatch.from_pylist(some(70, 3), SCHEMA))
    new = opened(tmp_path, take_over=True)
    new.owner()
    old.owner().appenders[0]._tail.write(written)
    assert numbers(reader) == []
    assert numbers(opened(tmp_path).reader()) == [0, 1]
    new.append(some(2, 1))
    assert numbers(reader) == [2]
    with pytest.raises(FencedError):
        old.append(some(80, 1))
    old.close()
    new.close()
    with opened(tmp_path) as log:
        log.append(some(3, 1))
        log.compact()
        assert numbers(log.reader()) == [0, 1, 2, 3]


def test_a_reader_does_not_see_what_the_owner_has_not_acknowledged(tmp_path: Path) -> None:
    import pyarrow as pa

    log = opened(tmp_path)
    log.append(some(0, 2))
    reader = opened(tmp_path).reader(committed=False)
    log.owner().appenders[0]._tail.write(zombie_frame(log, 2, pa.RecordBatch.from_pylist(some(2, 3), SCHEMA)))
    assert numbers(reader) == [0, 1]
    log.owner().abandon()  # it dies before the acknowledgement: what it wrote is whole, so it counts
    assert numbers(reader) == [2, 3, 4]
    with opened(tmp_path) as next_one:
        assert next_one.append(some(5, 1)).position == 5
    assert numbers(reader) == [5]


def test_a_lost_word_of_the_owner_shows_less_never_something_else(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(some(0, 2))
    (live,) = (tmp_path / "log/p00000").glob("*.live")
    for content in (b"", b"x" * 44, bytes(44)):
        live.write_bytes(content)
        assert numbers(opened(tmp_path).reader()) == []
    log.append(some(2, 2))
    assert numbers(opened(tmp_path).reader()) == [0, 1, 2, 3]


@pytest.mark.fault("D01")
def test_two_processes_open_a_log_at_once_and_one_writes(tmp_path: Path) -> None:
    opened(tmp_path)
    racers = [forked.start(race, tmp_path, number) for number in range(RACERS)]
    while len(list(tmp_path.glob("ready-*"))) < RACERS:
        time.sleep(0.001)
    (tmp_path / "go").touch()
    while len(told := list(tmp_path.glob("outcome-*"))) < RACERS:
        time.sleep(0.001)
    outcomes = sorted(path.read_text() for path in told)
    (tmp_path / "end").touch()
    assert [forked.finish(racer) for racer in racers] == [0] * RACERS
    assert outcomes == [*["refused"] * (RACERS - 1), "wrote"]
    with opened(tmp_path) as log:
        assert len(numbers(log.reader())) == 1


RACERS = 4


def race(root: Path, number: int) -> None:
    """Body of a child: it lets go of the log when all have tried."""
    log = opened(root)
    (root / f"ready-{number}").touch()
    while not (root / "go").exists():
        pass
    try:
        log.append(some(number, 1))
        outcome = "wrote"
    except StoreError:
        outcome = "refused"
    (root / f"writing-{number}").write_text(outcome)
    (root / f"writing-{number}").rename(root / f"outcome-{number}")
    while not (root / "end").exists():
        time.sleep(0.001)
    log.close()


def append_in_a_fork(log: hf.Log) -> int:
    pid = os.fork()
    if not pid:
        try:
            log.append(some(70, 1))
            os._exit(1)
        except StoreError:
            log.close()
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.fault("P14")
def test_a_fork_does_not_write_into_its_parents_log(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(some(0, 1))
    assert append_in_a_fork(log) == 0
    log.append(some(1, 1))
    assert numbers(log.reader()) == [0, 1]
    log.close()
    assert numbers(opened(tmp_path).reader()) == [0, 1]


# --- the index ---


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two closed segments of twenty frames with an entry per frame, and a tail."""
    monkeypatch.setattr("holdfast.log.format.index.SPACING", 1)
    with opened(tmp_path, segment_bytes=9000) as log:
        for n in range(60):
            log.append(some(n, 1), time=BEGIN + timedelta(seconds=n))
    found = sorted((tmp_path / "log/p00000").glob("*.index"))
    assert len(found) >= 1
    return tmp_path


def check_reads(root: Path) -> None:
    log = opened(root)
    for n in (0, 1, 7, 25, 44, 59):
        assert numbers(log.reader(n)) == list(range(n, 60))
        assert numbers(log.reader(BEGIN + timedelta(seconds=n))) == list(range(n, 60))
        assert numbers(log.reader(BEGIN + timedelta(seconds=n - 0.5))) == list(range(n, 60))


def damage_index(path: Path, how: str) -> None:
    name = parse(path.name.removesuffix(".index"))
    assert name is not None
    log = hf.Log(path.parents[1]).facts.id
    data = path.read_bytes()
    if how == "deleted":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "torn":
        path.write_bytes(data[: len(data) // 2])
    elif how == "rubbish":
        path.write_bytes(os.urandom(300))
    elif how == "stale":  # knows the beginning only
        found = Index([Place(name.first, 8, NO_TIME)])
        segments.store_index(path.with_name(str(name)), log, name, found)
    else:  # whole, of this segment, and false
        found = Index([Place(name.first + 3 * n, 600 + 111 * n, NO_TIME + n) for n in range(20)])
        segments.store_index(path.with_name(str(name)), log, name, found)


@pytest.mark.parametrize("how", ["deleted", "empty", "torn", "rubbish", "stale", "false"])
def test_an_index_is_not_needed_and_not_believed(indexed: Path, how: str) -> None:
    check_reads(indexed)
    for path in (indexed / "log/p00000").glob("*.index"):
        damage_index(path, how)
    check_reads(indexed)
    with opened(indexed) as log:
        log.compact()
    check_reads(indexed)


def test_an_index_of_another_segment_is_not_believed(indexed: Path) -> None:
    found = sorted((indexed / "log/p00000").glob("*.index"))
    data = [path.read_bytes() for path in found]
    for path, other in zip(found, data[1:] + data[:1], strict=True):
        path.write_bytes(other)
    check_reads(indexed)


def test_an_index_that_was_lost_is_made_again(indexed: Path) -> None:
    for path in (indexed / "log/p00000").glob("*.index"):
        path.unlink()
    with opened(indexed) as log:
        made = log.rebuild_index()
        assert made == len(list((indexed / "log/p00000").glob("*.index"))) >= 1
    check_reads(indexed)


# --- clocks ---


@pytest.mark.fault("T01")
def test_a_clock_that_is_set_back_or_ahead_loses_nothing(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000)
    log = opened(tmp_path, clock=clock, keep="1 hour", segment_bytes=1)
    for n, jump in enumerate((0, -86_400 * 400, 60, 86_400 * 400, -30)):
        clock.advance(jump)
        log.append(some(n, 1))
        log.retain()
    assert numbers(log.reader()) == list(range(5))
    clock.advance(86_400 * 1000)  # ahead, while nothing comes
    assert [each.low for each in log.retain()] == [0]
    clock.advance(60)
    log.append(some(5, 1))  # the log itself says that it is later now
    assert [each.low for each in log.retain()] == [5]
    assert numbers(log.reader()) == [5]
    log.close()


def test_a_consumer_expires_by_the_writers_clock_only(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000)
    log = opened(tmp_path, clock=clock, segment_bytes=1)
    for n in range(3):
        log.append(some(n, 1))
    log.consumer("gone", 0, expires="1 hour")
    log.consumer("here", 3)
    clock.advance(7200)
    assert [(each.low, each.held_by) for each in log.retain()] == [(0, "consumer gone")]
    log.append(some(3, 1))
    assert [each.low for each in log.retain()] == [3]
    log.close()


# --- retention, decided ---


def facts(*ends: int) -> list[SegmentFacts]:
    starts = [0, *ends[:-1]]
    return [SegmentFacts(a, b, 100, b * 1_000_000) for a, b in zip(starts, ends, strict=True)]


@pytest.mark.parametrize(
    ("keep", "holders", "wanted"),
    [
        (Keep(), [], (0, "", "")),
        (Keep(), [Holder("a", 25)], (20, "consumers", "a")),
        (Keep(), [Holder("a", 25), Holder("b", 5)], (0, "", "b")),
        (Keep(), [Holder("a", 25), Holder("b", 5, expires=1)], (20, "consumers", "a")),
        (Keep(), [Holder("p", 25, is_pin=True)], (0, "", "")),
        (Keep(seconds=15), [], (20, "time", "")),
        (Keep(seconds=15), [Holder("a", 12)], (10, "time", "a")),
        (Keep(bytes=200), [], (30, "size", "")),
        (Keep(bytes=200, seconds=35), [], (30, "size", "")),
        (Keep(bytes=250, seconds=2), [], (30, "time", "")),
        (Keep(bytes=250), [Holder("p", 7, is_pin=True)], (0, "", "p")),
        (Keep(bytes_max=200), [Holder("a", 12)], (30, "size_max", "a")),
        (Keep(bytes_max=250), [Holder("a", 12), Holder("p", 22, is_pin=True)], (20, "size_max", "a")),
    ],
)
def test_what_may_go(keep: Keep, holders: list[Holder], wanted: tuple[int, str, str]) -> None:
    found = decide(keep, facts(10, 20, 30, 40), 50, 44, 0, holders, 40_000_000)
    assert (found.low, found.because, found.held_by) == wanted
    assert found.broken == (("a",) if found.because == "size_max" else ())


def test_a_reader_that_is_overtaken_by_the_brake_is_told(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1, keep_bytes_max=3000)
    log.consumer("slow", 0)
    reader = log.reader()
    for n in range(20):
        log.append(some(n, 1))
    (found,) = log.retain()
    assert found.broken == ("consumer slow",)
    with pytest.raises(TrimmedError, match="size_max"):
        reader.next()
    log.close()
