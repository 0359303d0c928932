"""A run that ends in order loses nothing that was inside: what comes before a region ends first, what was received is taken."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import MemorySink, Rows, submit_local

ROWS = 400


def store(shelf: str) -> str:
    return "memory:" + re.sub(r"\W", "_", shelf)


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


class Gate:
    """Lets rows through slowly, so that some wait everywhere when the stop comes."""

    def process(self, row: Any, port: int) -> Any:
        time.sleep(0.001)
        return {"n": row.n}


def behind_an_autonomous_part(shelf: str, replayable: bool, mode: Any) -> hf.Topology:
    made = hf.Topology("ends")
    rows = made.source(Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=5), name="rows")
    slow = rows.apply(Gate, "n long", name="slow")
    if replayable:
        inside = slow.replayable(name="kept").consistent("r", mode=mode, period=0.05)
    else:
        other = made.source(hf.Beacon(rate=500), name="beacon").consistent("r", mode=mode, period=0.05)
        inside = made.operator(Both, [other, slow.autonomous()], schema="n long", name="both")
    inside.apply(Gate, "n long", name="gate").isolate().sink(MemorySink(shelf), name="out")
    return made


class Both:
    """What comes over the autonomous port goes on."""

    def process(self, row: Any, port: int) -> Any:
        return {"n": row.n} if port == 1 else None


@pytest.mark.parametrize("mode", ["async", "drain", "token", "independent"])
@pytest.mark.fault("R03")
def test_a_stop_ends_what_comes_before_a_region_first(mode: str, shelf: str) -> None:
    for _ in range(200):
        job = submit_local(behind_an_autonomous_part(shelf, True, mode), store(shelf))
        before = len(MemorySink.rows(shelf))
        wait(lambda before=before: len(MemorySink.rows(shelf)) >= min(before + 60, ROWS), "some rows")
        job.stop(60)
        status = job.status()
        assert status["lost_rows"]["out"] == 0
        if len(MemorySink.rows(shelf)) == ROWS:
            break
    assert [row["n"] for row in MemorySink.rows(shelf)] == list(range(ROWS))


def test_a_region_with_sources_of_its_own_reads_no_more_and_ends_with_what_enters(shelf: str) -> None:
    job = submit_local(behind_an_autonomous_part(shelf, False, "async"), store(shelf))
    wait(lambda: len(MemorySink.rows(shelf)) >= 30, "some rows")
    job.stop(60)
    assert job.status()["state"] == "ended"
    assert job.status()["lost_rows"]["out"] == 0
    job = submit_local(behind_an_autonomous_part(shelf, False, "async"), store(shelf))
    wait(lambda: len(MemorySink.rows(shelf)) >= ROWS, "all rows")
    job.stop(60)
    assert [row["n"] for row in MemorySink.rows(shelf)] == list(range(ROWS))


class Plain:
    def process(self, row: Any, port: int) -> Any:
        return {"n": row.id}


def test_a_region_that_feeds_itself_ends_nevertheless(shelf: str) -> None:
    made = hf.Topology("cycle")
    rows = made.source(hf.Beacon(rate=500), name="beacon").consistent("r", period=0.05)
    passed = rows.apply(Plain, "n long", name="plain")
    back = passed.autonomous().apply(Gate, "n long", name="outside")
    made.operator(Both, [passed, back.autonomous()], schema="n long", name="both").sink(
        MemorySink(shelf), name="out"
    )
    job = submit_local(made, store(shelf))
    wait(lambda: len(MemorySink.rows(shelf)) >= 10, "some rows")
    job.stop(60)
    assert job.status()["state"] == "ended"


def lines_into(shelf: str, source: Any, kept: bool) -> hf.Topology:
    made = hf.Topology("lines")
    lines = made.source(source, name="lines")
    inside = lines.replayable(name="kept").consistent("r", period=0.05) if kept else lines
    inside.sink(MemorySink(shelf), name="out")
    return made


@pytest.mark.parametrize("kept", [False, True])
def test_lines_that_were_received_before_a_stop_are_taken(kept: bool, shelf: str) -> None:
    source = hf.TcpLines(0, buffer=50)
    job = submit_local(lines_into(shelf, source, kept), store(shelf))
    with socket.create_connection(("127.0.0.1", source.port)) as sender:
        sender.sendall(b"".join(b"%d\n" % n for n in range(1000)) + b"half a li")
        job.stop(60)
    assert sorted(int(row["line"]) for row in MemorySink.rows(shelf)) == list(range(1000))
    assert job.status()["lost_rows"]["out"] == 0


def test_a_sender_that_never_pauses_does_not_hold_up_the_stop(shelf: str) -> None:
    source = hf.TcpLines(0)
    job = submit_local(lines_into(shelf, source, False), store(shelf))
    over = threading.Event()

    def send() -> None:
        with socket.create_connection(("127.0.0.1", source.port)) as sender:
            try:
                while not over.is_set():
                    sender.sendall(b"a line".ljust(1000) + b"\n")
            except OSError:
                pass  # cut off

    sending = threading.Thread(target=send)
    sending.start()
    try:
        wait(lambda: MemorySink.rows(shelf), "some lines")
        job.stop(60)
        assert job.status()["state"] == "ended"
    finally:
        over.set()
        sending.join()
    assert {row["line"] for row in MemorySink.rows(shelf)} == {"a line".ljust(1000)}


def test_lines_of_requests_that_were_answered_are_taken_and_others_are_told(shelf: str) -> None:
    source = hf.HttpLines(0, buffer=40)
    job = submit_local(lines_into(shelf, source, False), store(shelf))
    taken: list[str] = []
    refused: list[int] = []

    def post(number: int) -> None:
        lines = [f"{number}-{n}" for n in range(30)]
        url = f"http://127.0.0.1:{source.port}"
        try:
            with urllib.request.urlopen(url, "\n".join(lines).encode(), timeout=30) as answer:
                assert json.load(answer) == {"lines": 30}
            taken.extend(lines)
        except (urllib.error.URLError, OSError):
            refused.append(number)

    senders = [threading.Thread(target=post, args=(n,)) for n in range(20)]
    for sender in senders:
        sender.start()
    wait(lambda: taken, "an answer")
    job.stop(60)
    for sender in senders:
        sender.join()
    assert sorted(row["line"] for row in MemorySink.rows(shelf)) == sorted(taken)


class Ticks(hf.Operator):
    """Submits from a thread, faster than steps come."""

    def __init__(self) -> None:
        self.n = 0

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                context.submit({"n": self.n})
                self.n += 1


def test_rows_that_threads_submitted_before_a_stop_are_taken(shelf: str) -> None:
    made = hf.Topology("ticks")
    ticks = made.operator(Ticks, [], schema="n long", name="ticks")
    ticks.replayable(name="kept").consistent("r", period=0.05).sink(MemorySink(shelf), name="out")
    job = submit_local(made, store(shelf))
    wait(lambda: len(MemorySink.rows(shelf)) > 100, "some rows")
    job.stop(60)
    rows = [row["n"] for row in MemorySink.rows(shelf)]
    instance = job.loops[next(iter(job.loops))].worker.hosted[0].instance
    assert rows == list(range(instance.n))
