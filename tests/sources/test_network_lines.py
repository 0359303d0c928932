"""Lines over TCP, UDP and HTTP: every line a row, back-pressure, what cannot be read, and what failures cost."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import ConfigError, InputError, TopologyError
from holdfast.runtime.job import Job
from holdfast.sinks.memory import MemorySink
from holdfast.testing import arm, disarm, run_local, submit_local


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def lines(shelf: str) -> list[str]:
    return [row["line"] for row in MemorySink.rows(shelf)]


@contextmanager
def running(source: Any, shelf: str, store: str | None = None) -> Iterator[Job]:
    MemorySink.clear(shelf)
    topology = hf.Topology("lines")
    topology.source(source, name="lines").sink(MemorySink(shelf), name="out")
    job = submit_local(topology, store)
    try:
        yield job
    finally:
        job.close()
        disarm()


def send(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(data)


def post(port: int, data: bytes, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", data, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_every_line_is_a_row_whoever_sends_it_and_the_last_needs_no_end() -> None:
    source = hf.TcpLines(0)
    with running(source, "tcp-1") as job:
        sent = [[f"{who} {n} ä" for n in range(300)] for who in range(3)]
        data = ["\n".join(each).encode() for each in sent]
        senders = [threading.Thread(target=send, args=(source.port, each)) for each in data]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        wait(lambda: len(lines("tcp-1")) == 900, "900 rows")
        assert sorted(lines("tcp-1")) == sorted(line for each in sent for line in each)
        assert [line for line in lines("tcp-1") if line.startswith("1 ")] == sent[1], (
            "in the order of its sender"
        )
        assert job.status()["elements"]["lines"]["counts"]["lines"]["received"] == 900


def test_lines_that_cannot_be_read_are_left_out_and_counted() -> None:
    source = hf.TcpLines(0, longest=100)
    with running(source, "tcp-2") as job:
        send(source.port, b"good\n\xff\xfe\n" + b"x" * 500_000 + b"\r\n" + b"y" * 101 + b"\n\nlast\r\n")
        wait(lambda: "last" in lines("tcp-2"), "the last line")
        assert lines("tcp-2") == ["good", "", "last"]
        assert job.status()["elements"]["lines"]["counts"]["lines"]["malformed"] == 3


@pytest.mark.fault("I10")
def test_a_full_buffer_holds_the_sender_back_and_nothing_is_lost() -> None:
    source = hf.TcpLines(0, buffer=50)
    source.open(lambda: None)
    try:
        text = "z" * 1000
        sender = threading.Thread(
            target=send, args=(source.port, b"".join(f"{n} {text}\n".encode() for n in range(20_000)))
        )
        sender.start()
        seen: list[str] = []

        def take() -> bool:
            piece = source.next_slice()
            if piece is not None:
                assert len(source._lines) <= 20_000
                seen.extend(source.read_arrow(piece, None).column(0).to_pylist())
                source.processed(piece)
            return len(seen) == 20_000

        time.sleep(0.3)
        assert sender.is_alive(), "it waits"
        assert len(source._lines) < 20_000
        wait(take, "all lines")
        assert [int(line.split()[0]) for line in seen] == list(range(20_000))
        sender.join()
    finally:
        source.close()


def test_rows_of_a_failed_step_are_counted_as_lost_and_numbers_go_on() -> None:
    source = hf.TcpLines(0)
    with running(source, "tcp-3", "memory:tcp-3") as job:
        send(source.port, b"".join(b"a%d\n" % n for n in range(50)))
        wait(lambda: len(lines("tcp-3")) == 50, "50 rows")
        arm("sink.write=raise@1")
        send(source.port, b"".join(b"b%d\n" % n for n in range(50)))
        wait(
            lambda: len(lines("tcp-3")) + job.status()["lost_rows"]["out"] == 100, "all rows, or their count"
        )
        assert job.status()["lost_rows"]["out"] > 0
        send(source.port, b"more\n")
        wait(lambda: "more" in lines("tcp-3"), "more")


def test_posted_lines_are_taken_in_whole_or_not_at_all() -> None:
    source = hf.HttpLines(0, buffer=100, patience=0.1, largest=5000)
    with running(source, "http-1"):
        assert post(source.port, b"a\nb\r\nc") == 200
        assert post(source.port, b"") == 200
        assert post(source.port, b"x\n" * 101) == 413
        assert post(source.port, b"x" * 6000) == 413
        wait(lambda: len(lines("http-1")) == 3, "3 rows")
        assert lines("http-1") == ["a", "b", "c"]
    source = hf.HttpLines(0, buffer=100, patience=0.1)
    source.open(lambda: None)
    try:
        assert post(source.port, b"x\n" * 80) == 200
        assert post(source.port, b"y\n" * 30) == 503
        assert source.counts() == {"received": 80}
        piece = source.next_slice()
        assert piece is not None
        assert post(source.port, b"y\n" * 30) == 200
        connection = socket.create_connection(("127.0.0.1", source.port))
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 411 " in connection.recv(1000)
        connection.close()
    finally:
        source.close()


@pytest.mark.parametrize("make", [hf.TcpLines, hf.HttpLines])
def test_regions_bounded_runs_and_wrong_ports_are_refused(make: Any) -> None:
    topology = hf.Topology("lines")
    topology.source(make(0), name="lines").consistent(period=1).sink(MemorySink("refused"), name="out")
    with pytest.raises(TopologyError, match="cannot replay rows"):
        submit_local(topology, "memory:lines-refused")
    topology = hf.Topology("lines")
    topology.source(make(0), name="lines").sink(MemorySink("refused"), name="out")
    with pytest.raises(ConfigError, match="has no last row"):
        run_local(topology)
    with pytest.raises(ConfigError, match="not a port"):
        make(70_000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match="cannot listen"), running(make(port), "taken"):
            pass


@pytest.mark.fault("SR11")
def test_it_listens_on_the_loopback_interface_and_lets_go_of_the_port() -> None:
    source = hf.TcpLines(0)
    assert source.host == "127.0.0.1"
    with running(source, "tcp-4"):
        port = source.port
    socket.create_server(("127.0.0.1", port)).close()
    wait(
        lambda: not [t for t in threading.enumerate() if t.name == f"tcp-lines-{port}"], "its threads to end"
    )


# --- UDP ---


def shout(port: int, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for each in datagrams:
            sender.sendto(each, ("127.0.0.1", port))


def test_every_line_of_a_datagram_is_a_row() -> None:
    source = hf.UdpLines(0, longest=100)
    with running(source, "udp-1") as job:
        shout(source.port, b"one", b"two\nthree\r\n", b"\xff\n" + b"x" * 101 + b"\nfour")
        wait(lambda: "four" in lines("udp-1"), "the last line")
        assert lines("udp-1") == ["one", "two", "three", "four"]
        assert job.status()["elements"]["lines"]["counts"]["lines"] == {"received": 4, "malformed": 2}
    with pytest.raises(ConfigError, match="no last row"):
        source.bound()


def test_datagrams_that_have_arrived_when_the_run_ends_are_taken() -> None:
    source = hf.UdpLines(0, buffer=10)
    with running(source, "udp-2") as job:
        shout(source.port, *(b"%d" % n for n in range(200)))
        job.stop()
        assert lines("udp-2") == [str(n) for n in range(200)]


def test_a_port_of_datagrams_that_is_taken_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match="cannot listen"):
            hf.UdpLines(taken.getsockname()[1]).open(lambda: None)
