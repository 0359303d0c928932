"""Sources that cannot replay feed regions by way of a log: nothing that reached the log is lost or read twice."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killed import killed_and_finished, written

import holdfast as hf
from holdfast.errors import ConfigError, StoreError, TopologyError
from holdfast.failpoints import arm, disarm
from holdfast.testing import MemorySink, Rows, submit_local

PROGRAM = Path(__file__).with_name("preserved_program.py")


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    disarm()


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def send(port: int, numbers: range) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"".join(b"%d\n" % n for n in numbers))


def topology(source: hf.Source, shelf: str) -> hf.Topology:
    made = hf.Topology("lines")
    lines = made.source(source, name="lines").consistent("r", period=0.02)
    lines.sink(MemorySink(shelf), name="out")
    return made


def found(shelf: str) -> list[int]:
    return [int(row["line"]) for row in MemorySink.rows(shelf)]


def test_lines_feed_a_region_exactly_once_whatever_fails(tmp_path: Path) -> None:
    inner, shelf = hf.TcpLines(0), str(tmp_path)
    source = hf.Preserved(inner, tmp_path / "log", rows_per_step=25)
    arm("drain.all_acked=raise@2;step.end=raise@5;sink.commit.begin=raise@3")
    job = submit_local(topology(source, shelf), f"file:{tmp_path}/store")
    try:
        for first in range(0, 400, 40):
            send(inner.port, range(first, first + 40))
            wait(lambda first=first: len(found(shelf)) >= first, "earlier lines")
        wait(lambda: len(found(shelf)) == 400, "all lines")
        hits = disarm()
    finally:
        job.close()
    assert all(hits.values()), hits
    assert sorted(found(shelf)) == list(range(400))


def test_what_was_received_and_not_processed_is_read_by_the_next_run(tmp_path: Path) -> None:
    inner, shelf = hf.TcpLines(0), str(tmp_path)
    source = hf.Preserved(inner, tmp_path / "log")
    source.open(lambda: None)
    source.seek(None)
    send(inner.port, range(10))
    wait(source.next_slice, "the lines")
    source.close()  # nothing of it was processed
    job = submit_local(
        topology(hf.Preserved(again := hf.TcpLines(0), tmp_path / "log"), shelf), f"file:{tmp_path}/store"
    )
    try:
        wait(lambda: len(found(shelf)) == 10, "the lines of before")
        send(again.port, range(10, 15))
        wait(lambda: len(found(shelf)) == 15, "new lines")
    finally:
        job.close()
    assert found(shelf) == list(range(15))


@pytest.mark.parametrize("where", ["log.write", "log.written", "log.synced"])
def test_an_append_that_fails_doubles_and_loses_nothing(tmp_path: Path, where: str) -> None:
    inner = hf.TcpLines(0)
    source = hf.Preserved(inner, tmp_path / "log")
    source.open(lambda: None)
    source.seek(None)
    try:
        send(inner.port, range(5))
        wait(source.next_slice, "lines")
        arm(f"{where}=eio@1")
        send(inner.port, range(5, 10))

        def fails() -> bool:
            try:
                source.next_slice()
            except StoreError:
                return True
            return False

        wait(fails, "the failure")
        assert all(disarm().values())
        rows: list[int] = []
        while len(rows) < 5:
            if (piece := source.next_slice()) is not None:
                rows += [int(line) for line in source.read_arrow(piece, None).column("line").to_pylist()]
        assert rows == list(range(5, 10))
        assert source.next_slice() is None
    finally:
        source.close()
    assert hf.Log(tmp_path / "log").reader().read_all().num_rows == 10


def test_a_source_that_can_replay_needs_no_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can be read again"):
        hf.Preserved(Rows([(1,)], "n long"), tmp_path / "log")


KILLS = {
    "appending": ["log.preserved=kill@6", "log.synced=kill@4", "log.written=kill@9"],
    "stepping": ["step.end=kill@4", "ckpt.epoch.published=kill@1", "sink.commit.applied=kill@1"],
}


@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS)
def test_a_feed_that_waits_for_answers_is_counted_once_under_kills(tmp_path: Path, kills: list[str]) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    assert sorted(row["n"] for row in written(tmp_path, "out")) == list(range(300))


# --- the verb ---


def test_preserve_is_a_verb_of_the_stream_of_a_source(tmp_path: Path) -> None:
    inner, shelf = hf.UdpLines(0), str(tmp_path)
    made = hf.Topology("lines")
    lines = made.source(inner, name="lines").preserve(tmp_path / "log", keep="1 hour")
    lines.consistent("r", period=0.02).sink(MemorySink(shelf), name="out")
    assert f"preserved in the log {tmp_path / 'log'}" in made.explain()
    arm("step.end=raise@2")
    job = submit_local(made, f"file:{tmp_path}/store")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for n in range(100):
                sender.sendto(b"%d" % n, ("127.0.0.1", inner.port))
                if n % 20 == 19:
                    wait(lambda n=n: len(found(shelf)) > n, "earlier lines")
    finally:
        job.close()
    assert all(disarm().values())
    assert sorted(found(shelf)) == list(range(100))
    assert hf.Log(tmp_path / "log").table().num_rows == 100


def test_preserve_is_refused_where_it_makes_no_sense(tmp_path: Path) -> None:
    made = hf.Topology("wrong")
    with pytest.raises(ConfigError, match="can be read again") as told:
        made.source(Rows([(1,)], "n long"), name="rows").preserve(tmp_path / "log")
    assert "LogSink" in str(told.value.cure)
    inner = hf.TcpLines(0)
    lines = made.source(inner, name="lines")
    with pytest.raises(TopologyError, match="'words' is no source"):
        lines.map_arrow(lambda table: table, "line string", name="words").preserve(tmp_path / "log")
    lines.preserve(tmp_path / "log")
    with pytest.raises(ConfigError, match="can be read again"):
        lines.preserve(tmp_path / "other")
    with pytest.raises(TopologyError, match="already read by 'lines'"):
        made.source(inner, name="again")
    assert not (tmp_path / "log").exists(), "nothing is made before the run"
