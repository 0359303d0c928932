"""What arrives at a parked region by `.replayable()` is kept for it in the store, up to a bound, and processed once when it goes on."""

from __future__ import annotations

import io
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import parked_input_program as program
import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired
from killed import written

import holdfast as hf
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.ids import ElementName
from holdfast.runtime.links.entered_log import EnteredLog
from holdfast.runtime.links.preserved_queue import LEAST_BYTES
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, run_local, submit_local

FILE = Path(program.__file__)
MANY = 3000
FEW = 12 * LEAST_BYTES
"""So many batches are kept."""


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def recorded(here: Path) -> set[int]:
    """Rows that are in the store."""
    log = EnteredLog(open_store(f"file:{here}/store"), ElementName("kept"), 0, here / "nowhere")
    files = [data for each in log.read() for _, data in each.files]
    assert all(isinstance(data, bytes) for data in files), "small batches lie inside of the writes"
    return {n for data in files for n in pq.read_table(io.BytesIO(data))["n"].to_pylist()}


def in_order(here: Path) -> list[int]:
    """Rows of the output by when they were counted; each number was given once."""
    found = sorted(written(here, "rows"), key=lambda row: row["seen"])
    assert [row["seen"] for row in found] == list(range(1, len(found) + 1))
    return [row["n"] for row in found]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    file = tmp_path / "broken"
    file.touch()
    return file


def parked(job: Any) -> bool:
    return bool(job.status()["regions"]["r"]["phase"] == "parked")


def taken(job: Any) -> int:
    return int(job.status()["elements"]["plus"]["rows"])


# --- a run goes on ----------------------------------------------------------------------------------------------------


@pytest.mark.fault("B06")
def test_a_resumed_region_processes_all_that_arrived_once(tmp_path: Path, broken: Path) -> None:
    job = submit_local(program.build(str(tmp_path)), f"file:{tmp_path}/store")
    try:
        wait(lambda: parked(job) and taken(job) == program.ROWS, "the rest to arrive at the parked region")
        wait(lambda: max(recorded(tmp_path)) == program.ROWS - 1, "it to be in the store")
        assert job.status()["regions"]["r"]["kept_rows"] > 100
        assert job.status()["lost_rows"]["out"] == 0
        broken.unlink()
        job.resume()
        wait(lambda: len(written(tmp_path, "rows")) == program.ROWS, "all rows")
    finally:
        job.close()
    assert in_order(tmp_path) == list(range(program.ROWS))
    assert job.status()["lost_rows"]["out"] == 0


def test_resumed_too_early_it_parks_again_and_nothing_is_lost(tmp_path: Path, broken: Path) -> None:
    job = submit_local(program.build(str(tmp_path)), f"file:{tmp_path}/store")
    try:
        for _ in range(2):
            wait(lambda: parked(job), "the region to be parked")
            resets = job.status()["regions"]["r"]["resets"]
            job.resume()
            wait(lambda before=resets: job.status()["regions"]["r"]["resets"] > before, "the resume")
        wait(lambda: parked(job) and taken(job) == program.ROWS, "the rest to arrive at the parked region")
        broken.unlink()
        job.resume()
        wait(lambda: len(written(tmp_path, "rows")) == program.ROWS, "all rows")
    finally:
        job.close()
    assert in_order(tmp_path) == list(range(program.ROWS))
    assert job.status()["lost_rows"]["out"] == 0


def test_a_sender_whose_sources_can_be_read_again_waits_at_the_bound(tmp_path: Path, broken: Path) -> None:
    job = submit_local(program.build(str(tmp_path), 2 * LEAST_BYTES, MANY), f"file:{tmp_path}/store")
    try:
        wait(lambda: parked(job), "the region to be parked")
        inputs = job.loops["kept"].ends.inputs.values()
        wait(lambda: all(connection.full for connection in inputs), "the sender to wait")
        wait(lambda: job.loops["plus"].metrics.waiting == "space downstream", "the sender to wait")
        assert taken(job) < MANY
        assert job.status()["lost_rows"]["out"] == 0
        broken.unlink()
        job.resume()
        wait(lambda: len(written(tmp_path, "rows")) == MANY, "all rows")
    finally:
        job.close()
    assert in_order(tmp_path) == list(range(MANY))


def test_a_sender_that_waits_has_nothing_in_hand_when_the_run_ends(tmp_path: Path, broken: Path) -> None:
    with pytest.raises(RegionParkedError):
        run_local(program.build(str(tmp_path), 2 * LEAST_BYTES, MANY), f"file:{tmp_path}/store")
    assert max(recorded(tmp_path)) == MANY - 1, "what waited before the sender is in the store too"
    broken.unlink()
    status = run_local(program.build(str(tmp_path), 2 * LEAST_BYTES, MANY), f"file:{tmp_path}/store")
    assert in_order(tmp_path) == list(range(MANY))
    assert status["lost_rows"]["out"] == 0


@pytest.mark.parametrize("keep", [0, FEW])
def test_behind_a_source_that_cannot_the_rest_is_thrown_away_and_counted(
    keep: int, shelf: str, tmp_path: Path, broken: Path
) -> None:
    made = hf.Topology("lines")
    source = hf.TcpLines(0)
    kept = made.source(source, name="lines").replayable(keep=keep, name="kept")
    kept = kept.consistent("r", period=0.02)

    class Number:
        def __init__(self) -> None:
            self.seen = 0

        def process(self, row: Any, port: int) -> Any:
            if int(row.line) >= 20 and broken.exists():
                raise ValueError("not while this is broken")
            self.seen += 1
            return {"n": int(row.line), "seen": self.seen}

    kept.apply(Number, "n long, seen long", name="number").sink(MemorySink(shelf), name="out")
    job = submit_local(made, f"file:{tmp_path}/store")

    def send(first: int) -> None:
        """A batch of its own."""
        rows = job.status()["elements"]["lines"]["rows"]
        with socket.create_connection(("127.0.0.1", source.port)) as connection:
            connection.sendall(b"".join(b"%d\n" % n for n in range(first, first + 10)))
        wait(lambda: job.status()["elements"]["lines"]["rows"] == rows + 10, "the lines to be read")

    try:
        for first in range(0, 30, 10):
            send(first)
        wait(lambda: parked(job), "the region to be parked")
        for first in range(30, 330, 10):
            send(first)
        broken.unlink()
        job.resume()
        wait(lambda: not parked(job), "the region to go on")
        send(330)
        wait(lambda: any(row["n"] == 339 for row in MemorySink.rows(shelf)), "the last line")
    finally:
        job.close()
    rows = MemorySink.rows(shelf)
    assert [row["seen"] for row in rows] == list(range(1, len(rows) + 1))
    missing = set(range(340)) - {row["n"] for row in rows}
    assert len(rows) + len(missing) == 340, "doubled"
    assert len(missing) == job.status()["lost_rows"]["out"]
    assert (len(missing) == 300) if keep == 0 else (100 <= len(missing) < 300)
    if keep:
        assert min(missing) >= 130, "what came first is kept"


def test_what_the_element_that_is_parked_does_meanwhile_does_not_matter(shelf: str, tmp_path: Path) -> None:
    """The first element of the region is not the one that broke: it goes on until nothing behind it takes anything."""
    broken = tmp_path / "broken"
    broken.touch()
    made = hf.Topology("two")
    rows = made.source(hf.Rows([(n,) for n in range(400)], "n long", rows_per_step=4), name="rows")
    kept = rows.replayable(name="kept").consistent("r", period=0.02)

    class Pass:
        def process(self, row: Any, port: int) -> Any:
            return {"n": row.n}

    class Odd:
        def process(self, row: Any, port: int) -> Any:
            if row.n == 90 and broken.exists():
                raise ValueError("not while this is broken")
            return {"n": row.n}

    first = kept.apply(Pass, "n long", name="first").isolate()
    first.apply(Odd, "n long", name="second").sink(MemorySink(shelf), name="out")
    job = submit_local(made, f"file:{tmp_path}/store")
    try:
        wait(lambda: parked(job) and job.status()["elements"]["rows"]["rows"] == 400, "all rows to be read")
        broken.unlink()
        job.resume()
        wait(lambda: len(MemorySink.rows(shelf)) >= 400, "all rows")
    finally:
        job.close()
    assert [row["n"] for row in MemorySink.rows(shelf)] == list(range(400))
    assert job.status()["lost_rows"]["out"] == 0


# --- the driver dies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [120, program.ROWS - 1])
@pytest.mark.fault("B06")
def test_what_was_kept_survives_the_driver(row: int, tmp_path: Path, broken: Path) -> None:
    child = subprocess.Popen([sys.executable, str(FILE), str(tmp_path)])
    try:
        wait((tmp_path / "parked").exists, "the region to be parked")
        wait(lambda: max(recorded(tmp_path), default=0) >= row, "rows to be kept for it")
    finally:
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    fired(DRIVER_KILLED)
    must_come = recorded(tmp_path)
    broken.unlink()
    status = run_local(program.build(str(tmp_path)), f"file:{tmp_path}/store").as_dict()
    rows = in_order(tmp_path)
    assert len(set(rows)) == len(rows), "doubled"
    assert must_come <= set(rows)
    assert program.ROWS - len(rows) <= status["lost_rows"]["out"] <= program.ROWS - len(rows) + 12


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [-1, 1.5, True, "1 GB"])
def test_what_is_no_number_of_bytes_is_refused(keep: Any) -> None:
    rows = hf.Topology("t").source(hf.Rows([(1,)], "n long"), name="rows")
    with pytest.raises(TopologyError, match=re.escape(f"keep must be a number of bytes, not {keep!r}")):
        rows.replayable(keep=keep)
