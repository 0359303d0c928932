"""Python operators that are slow or hang: epochs do not wait for what is queued before them, and the run says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.look.epochs import newest_manifest
from holdfast.errors import TopologyError
from holdfast.ids import RegionName
from holdfast.language.hosted import Operator
from holdfast.language.topology import Topology
from holdfast.runtime.job import Job
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, compare_rows, run_local, submit_local

ROWS = 2000


class Slow:
    """Takes a millisecond for each row, until it is told to hurry."""

    hurry = threading.Event()

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        if not Slow.hurry.is_set():
            time.sleep(0.005)
        self.seen += 1
        return (row.n, self.seen)


def slow_topology(shelf: str, rows: int = ROWS) -> Topology:
    made = Topology("slow")
    source = made.source(Rows([(n,) for n in range(rows)], "n long", rows_per_step=500), name="numbers")
    stream = source.consistent("r", trigger="manual")
    stream.apply(Slow, "n long, seen long", name="slow").sink(MemorySink(shelf), name="out")
    return made


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def processed(job: Job) -> int:
    return int(job.status()["elements"]["slow"]["rows"])


@pytest.mark.fault("I10")
def test_an_epoch_overtakes_what_waits_before_a_slow_operator_and_a_restore_gives_it_back(
    shelf: str, tmp_path: Path
) -> None:
    where = f"file:{tmp_path}/store"
    Slow.hurry.clear()
    job = submit_local(slow_topology(shelf), where, until=None)
    try:
        wait(lambda: job.status()["elements"]["numbers"]["rows"] == ROWS, "all rows queued")
        job.trigger_epoch()
        wait(lambda: job.status()["regions"]["r"]["epoch"] >= 1, "the epoch")
        job.trigger_epoch()
        wait(lambda: job.status()["regions"]["r"]["epoch"] >= 2, "another one")
        manifest = newest_manifest(open_store(where), RegionName("r"))
        captured = [b for part in manifest.parts.values() for bs in part.captured.values() for b in bs]
        assert processed(job) < ROWS // 2, "the queue was not worked off first"
        assert sum(batch.rows for batch in captured) > ROWS // 2
        assert any(batch.skip for batch in captured), "a batch of which some rows were processed"
    finally:
        Slow.hurry.set()
        job.close()
    MemorySink.clear(shelf)
    run_local(slow_topology(shelf), where)
    rows = MemorySink.rows(shelf)
    assert rows, "the second run went on from the epoch"
    assert [row["n"] for row in rows] == [row["seen"] - 1 for row in rows], "each row once, in order"
    assert rows[-1] == {"n": ROWS - 1, "seen": ROWS}
    assert rows[0]["n"] > 0, "it did not begin afresh"


class Hangs(Operator):
    """Hangs at a row, once."""

    hung = threading.Event()
    release = threading.Event()

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        if row.n == 40 and not Hangs.hung.is_set():
            Hangs.hung.set()
            Hangs.release.wait()
            self.submit((-1, -1))  # from a thread that was left behind: goes nowhere
        self.seen += 1
        return (row.n, self.seen)


@pytest.mark.fault("P05", "R01")
def test_a_call_that_hangs_is_named_and_left_behind_and_the_operator_goes_on_in_a_new_instance(
    shelf: str, tmp_path: Path
) -> None:
    Hangs.hung.clear()
    Hangs.release.clear()
    made = Topology("hangs")
    source = made.source(Rows([(n,) for n in range(60)], "n long", rows_per_step=5), name="numbers")
    stream = source.consistent("r", period=0.05, drain_timeout=3)
    stream.apply(Hangs, "n long, seen long", name="hangs").sink(MemorySink(shelf), name="out")
    job = submit_local(made, f"file:{tmp_path}/store", until="available")
    try:
        wait(Hangs.hung.is_set, "the call that hangs")
        wait(
            lambda: "process() of operator hangs, for" in job.status()["elements"]["hangs"]["waiting"],
            "its name in the status",
        )
        assert job.await_termination(timeout=60)
    finally:
        Hangs.release.set()
        job.close()
    assert job.status()["regions"]["r"]["resets"] == 1
    compare_rows([{"n": n, "seen": n + 1} for n in range(60)], MemorySink.rows(shelf))


class Talks(Operator):
    """Submits while it processes a row of its control port."""

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            self.submit((row.n,))
        return (row.n,) if port == 0 else None


def test_submitting_from_a_control_port_is_an_error_that_names_the_port(shelf: str, tmp_path: Path) -> None:
    made = Topology("talks")
    source = made.source(Rows([(n,) for n in range(10)], "n long"), name="numbers").consistent(
        "r", period=0.05
    )
    back = made.feedback("n long")
    sent = made.operator(Talks, inputs=[source], control=[back.stream], schema="n long", name="talks")
    back.complete(sent)
    sent.sink(MemorySink(shelf), name="out")
    with pytest.raises(TopologyError, match=r"'talks' submitted a row .* control port 1"):
        run_local(made, f"file:{tmp_path}/store")
