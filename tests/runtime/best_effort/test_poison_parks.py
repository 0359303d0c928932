"""`poison="park"` outside of regions: the element is parked with the row named, the rest goes on, and a person resumes it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import poison_parks_program as program
import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired

import holdfast as hf
from holdfast.errors import PoisonFound
from holdfast.testing import MemorySink, run_local, submit_local


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def found(here: Path, sink: str) -> list[int]:
    files = (here / sink).glob("part-*.parquet")
    return sorted(n for path in files for n in pq.read_table(path)["n"].to_pylist())


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    file = tmp_path / "broken"
    file.touch()
    return file


def store(tmp_path: Path) -> str:
    return f"file:{tmp_path}/store"


def test_it_is_parked_others_go_on_and_a_person_resumes_it(tmp_path: Path, broken: Path) -> None:
    job = submit_local(program.build(str(tmp_path)), store(tmp_path))
    try:
        wait(lambda: job.status()["state"] == "parked", "the element to be parked")
        wait(lambda: len(found(tmp_path, "others")) == program.ROWS, "the rest to go on")
        lost = job.status()["lost_rows"]["out"]
        assert lost >= 1
        assert not set(found(tmp_path, "rows")) & set(range(73, program.ROWS)), "it takes nothing more"
        broken.unlink()
        job.resume()
        wait(lambda: len(found(tmp_path, "rows")) == program.ROWS - lost, "it to go on")
        assert job.status()["state"] == "running"
    finally:
        job.close()
    rows = found(tmp_path, "rows")
    assert len(set(rows)) == len(rows)
    assert job.status()["lost_rows"] == {"out": lost, "others": 0}


def test_resumed_with_the_cause_still_there_it_parks_at_the_next_such_row(shelf: str) -> None:
    class Odd:
        def process(self, row: Any, port: int) -> Any:
            if int(row.line) % 10 == 5:
                raise ValueError("not this one")
            return {"n": int(row.line)}

    made, source = hf.Topology("twice"), hf.TcpLines(0)
    lines = made.source(source, name="lines").apply(Odd, "n long", name="odd", poison="park")
    lines.sink(MemorySink(shelf), name="out")
    told: list[str] = []
    job = submit_local(made, subscribers=[lambda event: told.append(event.kind)])

    def send(*numbers: int) -> None:
        with socket.create_connection(("127.0.0.1", source.port)) as connection:
            connection.sendall(b"".join(b"%d\n" % n for n in numbers))

    try:
        for times in (1, 2):
            send(10 * times, 10 * times + 5)
            wait(lambda n=times: told.count("element.parked") == n, "the element to be parked")
            wait(lambda: job.status()["state"] == "parked", "the state to say so")
            job.resume()
        send(99)
        wait(lambda: any(row["n"] == 99 for row in MemorySink.rows(shelf)), "the last row")
    finally:
        job.close()
    rows = [row["n"] for row in MemorySink.rows(shelf)]
    assert set(rows) <= {10, 20, 99}
    assert len(rows) == len(set(rows)) == 5 - job.status()["lost_rows"]["out"]
    assert told.count("element.resumed") == 2


@pytest.mark.parametrize("kind", ["in the driver", "per key", "over tables"])
def test_a_run_in_which_nothing_else_has_anything_to_do_raises_it(kind: str, shelf: str) -> None:
    class Keyed(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return os._exit(3) if row.n == 13 else {"n": row.n}

    class Driver:
        def process(self, row: Any, port: int) -> Any:
            if row.n == 13:
                raise ValueError("not this one")
            return {"n": row.n}

    def tables(rows: Any) -> Any:
        return os._exit(3) if 13 in rows["n"].to_pylist() else rows.select(["n"])

    made = hf.Topology("parks")
    rows = made.source(
        hf.Rows([(n, n % 2) for n in range(30)], "n long, k long", rows_per_step=5), name="rows"
    )
    match kind:
        case "in the driver":
            stream = rows.apply(Driver, "n long", name="op", poison="park")
        case "per key":
            stream = rows.keyed("k", Keyed, "n long", name="op", poison="park")
        case _:
            stream = rows.map_arrow(tables, "n long", name="op", poison="park")
    stream.sink(MemorySink(shelf), name="out")
    with pytest.raises(PoisonFound, match=r"operator 'op'(.|\n)*13"):
        run_local(made)
    assert 13 not in {row["n"] for row in MemorySink.rows(shelf)}


def test_a_driver_that_is_killed_while_it_is_parked_has_counted_what_is_missing(
    tmp_path: Path, broken: Path
) -> None:
    child = subprocess.Popen([sys.executable, str(Path(program.__file__)), str(tmp_path)])
    try:
        wait((tmp_path / "parked").exists, "the element to be parked")
    finally:
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    fired(DRIVER_KILLED)
    broken.unlink()
    status = run_local(program.build(str(tmp_path)), store(tmp_path)).as_dict()
    rows = found(tmp_path, "rows")
    assert len(set(rows)) == len(rows), "doubled"
    missing = program.ROWS - len(rows)
    assert 1 <= missing <= status["lost_rows"]["out"]
