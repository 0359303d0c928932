"""Logs as sinks and sources: they pass the suites of both, and two programs joined by a log give each row once."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from killed import killed_and_finished

import holdfast as hf
from holdfast import failpoints
from holdfast.errors import ConfigError, DamagedError, InputError, MismatchError, StoreError
from holdfast.ids import Epoch
from holdfast.language.connectors import Sink, Source
from holdfast.log.owner import acquire
from holdfast.testing import MemorySink, Rows, run_local
from holdfast.testing.sink_conformance import SCHEMA, SinkConformance, context, opened_sink, rows
from holdfast.testing.source_conformance import SourceConformance

PROGRAM = Path(__file__).with_name("two_programs.py")
DATA = [{"id": n, "word": f"w{n % 3}"} for n in range(23)]


def read(path: Path) -> list[tuple[Any, ...]]:
    log = hf.Log(path)
    return [tuple(row.values()) for row in log.reader().read_all().to_pylist()] if log.exists else []


class TestLogSink(SinkConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> Any:
        self.place = tmp_path / "log"
        self.made: list[Sink] = []
        yield
        for sink in self.made:
            sink.close()

    def make(self) -> Sink:
        self.made.append(hf.LogSink(self.place))
        self.made[-1].check_columns(SCHEMA)
        return self.made[-1]

    def visible(self) -> list[tuple[Any, ...]]:
        return read(self.place)


class LogSourceConformance(SourceConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "log"
        with hf.Log(self.path) as log:
            self.fill(log)

    def fill(self, log: hf.Log) -> None:
        raise NotImplementedError

    def make(self, rows_per_step: int | None) -> Source:
        return hf.LogSource(self.path, **({} if rows_per_step is None else {"rows_per_step": rows_per_step}))

    def expected(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in DATA]


class TestTail(LogSourceConformance):
    def fill(self, log: hf.Log) -> None:
        for first in range(0, 23, 4):
            log.append(DATA[first : first + 4])


class TestParquet(LogSourceConformance):
    def fill(self, log: hf.Log) -> None:
        log.append(DATA)
        log.close()
        with hf.Log(self.path) as again:
            again.compact()


class TestWithdrawn(LogSourceConformance):
    """Rows of epochs that were given up lie between those that count."""

    def fill(self, log: hf.Log) -> None:
        for epoch, first in enumerate(range(0, 23, 6), 1):
            log.append([{"id": -1, "word": "lost"}] * 5, epoch=epoch)
            log.withdraw_after(epoch - 1)
            log.append(DATA[first : first + 6], epoch=epoch)
            log.seal_epoch(epoch)


# --- what users may do ---


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    source = hf.LogSource(tmp_path / "log", schema="id long, word string", from_="now")
    source.seek(None)
    assert source.next_slice() is None
    state = source.snapshot()
    with hf.Log(tmp_path / "log") as log:
        log.append(DATA)
        piece = source.next_slice()
        assert piece is not None
        assert source.read_arrow(piece, None).to_pylist() == DATA
        source.seek(state)
        assert source.next_slice() == piece
    with pytest.raises(Exception, match="no log"):
        hf.LogSource(tmp_path / "other").schema()


def test_rows_that_were_seen_are_waited_for_while_another_writer_comes(tmp_path: Path) -> None:
    """The one before died between write and acknowledgement: whole rows count, but not while the next one looks for them."""
    log = hf.Log(tmp_path / "log")
    log.append(DATA[:3])
    failpoints.arm("log.written=raise")
    appender = log.owner().appenders[0]
    appender._tail.cut = lambda private: True  # type: ignore[method-assign]  # it is dead and cuts nothing
    with pytest.raises(StoreError):
        log.append(DATA[3:5])
    assert failpoints.disarm() == {"log.written": 1}
    log.owner().abandon()
    source = hf.LogSource(tmp_path / "log")
    source.seek(None)
    piece = source.next_slice()
    assert piece is not None
    assert piece.rows == 5
    lease = acquire(log.facts, take_over=False)
    read: list[pa.Table] = []
    reader = threading.Thread(target=lambda: read.append(source.read_arrow(piece, None)))
    assert hf.Log(tmp_path / "log").bounds().end == 3
    reader.start()
    lease.release()
    reader.join(60)
    assert read[0].to_pylist() == DATA[:5]


def test_rows_under_way_are_not_read(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append(DATA[:3], epoch=1)
        source = hf.LogSource(tmp_path / "log")
        source.seek(None)
        assert source.next_slice() is None
        log.seal_epoch(1)
        piece = source.next_slice()
        assert piece is not None
        assert piece.rows == 3


def test_reading_begins_anywhere(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append(DATA)
        for from_, first in ((5, 5), ("now", 23), ("beginning", 0)):
            source = hf.LogSource(tmp_path / "log", from_=from_)
            source.seek(None)
            piece = source.next_slice()
            assert (23 if piece is None else piece.start) == first


def test_rows_that_were_let_go_are_named(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log", segment_bytes=1) as log:
        source = hf.LogSource(tmp_path / "log", schema="id long, word string", rows_per_step=2)
        log.append(DATA[:10])
        log.append(DATA[10:])
        source.seek(None)
        assert source.next_slice() is not None
        log.trim(10)
        with pytest.raises(InputError, match=r"rows 2 to 9 .* were let go"):
            source.next_slice()


def test_another_log_at_the_same_path_is_refused(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "one") as one, hf.Log(tmp_path / "two") as two:
        one.append(DATA)
        two.append(DATA)
    source = hf.LogSource(tmp_path / "one")
    source.seek(None)
    source.next_slice()
    with pytest.raises(InputError, match="not the log that was read before"):
        hf.LogSource(tmp_path / "two").seek(source.snapshot())


def test_partitions_have_no_order_between_them(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log", partitions=2) as log:
        log.append(DATA[:3], partition=0)
        log.append(DATA[3:7], partition=1)
    with pytest.raises(ConfigError, match="2 partitions"):
        hf.LogSource(tmp_path / "log").schema()
    source = hf.LogSource(tmp_path / "log", partition=1)
    source.seek(None)
    piece = source.next_slice()
    assert piece is not None
    assert source.read_arrow(piece, None).to_pylist() == DATA[3:7]


def test_a_log_of_others_is_not_written(tmp_path: Path) -> None:
    sink = opened_sink(hf.LogSink(tmp_path / "log"))
    sink.write_arrow(rows(0), hf.StepId(0, 0))  # type: ignore[arg-type]
    sink.close()
    other = hf.LogSink(tmp_path / "log")
    other.open(context(sink="other"))
    with pytest.raises(MismatchError, match="'out' of topology"):
        other.restore(Epoch(0), None)
    with pytest.raises(MismatchError, match="word"):
        hf.LogSink(tmp_path / "log").check_columns(pa.schema([("n", pa.int64()), ("word", pa.int64())]))


@pytest.mark.fault("C07")
def test_a_log_that_lost_rows_of_an_epoch_is_refused(tmp_path: Path) -> None:
    sink = opened_sink(hf.LogSink(tmp_path / "log"))
    sink.write_arrow(rows(0), hf.StepId(0, 0))  # type: ignore[arg-type]
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    sink.close()
    with hf.Log(tmp_path / "empty", schema=SCHEMA):
        pass
    with pytest.raises(DamagedError, match="has 0 rows"):
        opened_sink(hf.LogSink(tmp_path / "empty"), epoch=1, prepared=prepared)


def test_a_reset_withdraws_what_is_on_its_way(tmp_path: Path) -> None:
    sink = opened_sink(hf.LogSink(tmp_path / "log"))
    for step in range(20):
        sink.write_arrow(rows(step), hf.StepId(0, step))  # type: ignore[arg-type]
    sink.seal(Epoch(1))
    sink.write_arrow(rows(100), hf.StepId(0, 100))  # type: ignore[arg-type]
    sink.restore(Epoch(0), None)
    sink.write_arrow(rows(7), hf.StepId(1, 0))  # type: ignore[arg-type]
    sink.commit(Epoch(1), sink.prepare(Epoch(1), sink.seal(Epoch(1))))
    assert read(tmp_path / "log") == [(7, "w7"), (8, "w8")]
    sink.close()


# --- in runs ---


def program(log: Path, shelf: str) -> tuple[hf.Topology, hf.Topology]:
    first = hf.Topology("first")
    numbers = first.source(Rows([(n,) for n in range(200)], "n long", rows_per_step=10), name="numbers")
    numbers.consistent("r", period=0.01).sink(hf.LogSink(log), name="log")
    second = hf.Topology("second")
    read = second.source(hf.LogSource(log, rows_per_step=15, schema="n long"), name="log")
    counted = read.consistent("r", period=0.01).aggregate("n", times=hf.count(), name="counted")
    counted.sink(MemorySink(shelf), name="out")
    return first, second


def test_two_programs_joined_by_a_log(tmp_path: Path) -> None:
    shelf = str(tmp_path)
    first, second = program(tmp_path / "log", shelf)
    run_local(second, f"file:{tmp_path}/two")
    assert MemorySink.rows(shelf) == []
    run_local(first, f"file:{tmp_path}/one")
    run_local(second, f"file:{tmp_path}/two")
    run_local(first, f"file:{tmp_path}/one")
    run_local(second, f"file:{tmp_path}/two")
    found = {row["n"]: row["times"] for row in MemorySink.rows(shelf)}
    assert found == dict.fromkeys(range(200), 1)


def test_outside_of_regions_rows_count_at_once(tmp_path: Path) -> None:
    made = hf.Topology("plain")
    numbers = made.source(Rows([(n,) for n in range(30)], "n long", rows_per_step=10), name="numbers")
    numbers.sink(hf.LogSink(tmp_path / "log"), name="log")
    run_local(made)
    assert read(tmp_path / "log") == [(n,) for n in range(30)]


KILLS = {
    "writing": ["sink.write=kill@7", "log.written=kill@3"],
    "sealing": ["sink.prepared=kill@1", "sink.commit.begin=kill@1", "sink.commit.applied=kill@1"],
    "restoring": ["step.end=kill@3", "ckpt.epoch.published=kill@1", "reset.sink.rollback=kill@1"],
}


@pytest.mark.parametrize(("writer", "reader"), list(itertools.product(KILLS, repeat=2)))
@pytest.mark.sampled(keep=3)
@pytest.mark.fault("B08", "O02")
def test_both_programs_are_killed_and_each_row_is_there_once(
    writer: str, reader: str, tmp_path: Path
) -> None:
    killed_and_finished(PROGRAM, tmp_path, KILLS[writer], "first")
    kills = [kill for kill in KILLS[reader] if not kill.startswith("log.")]
    killed_and_finished(PROGRAM, tmp_path, kills, "second")
    assert read(tmp_path / "log") == [(n, n * n) for n in range(400)]
    assert read(tmp_path / "again") == [(n, n * n + 1) for n in range(400)]
