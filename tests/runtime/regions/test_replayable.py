"""A replayable start in the middle of a graph: what entered the region comes again after a reset, and only then."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import DamagedError
from holdfast.testing import MemorySink, Rows, arm, disarm, run_local, submit_local

ROWS = 600


@pytest.fixture(autouse=True)
def no_failpoints() -> Any:
    yield
    disarm()


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


class Count:
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return {"n": row.n, "seen": self.seen}


def topology(shelf: str, **settings: Any) -> hf.Topology:
    made = hf.Topology("kept")
    rows = made.source(Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=5), name="rows")
    kept = rows.replayable(name="kept").consistent("r", **settings)
    kept.apply(Count, "n long, seen long", name="count").sink(MemorySink(shelf), name="out")
    return made


def store(shelf: str) -> str:
    return "memory:" + re.sub(r"\W", "_", shelf)


FAULTS = (
    "reset.begin=raise@2;drain.begin=raise@3",
    "drain.all_acked=raise@1",
    "drain.all_acked=raise@3",
    "ckpt.op.put=raise@2",
)


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.fault("R08")
def test_a_reset_costs_no_row_of_an_autonomous_source(fault: str, mode: str, shelf: str) -> None:
    arm(fault)
    status = run_local(topology(shelf, period=0.01, mode=mode), store(shelf))
    assert status["regions"]["r"]["resets"] >= 1
    assert [(row["n"], row["seen"]) for row in MemorySink.rows(shelf)] == [(n, n + 1) for n in range(ROWS)]
    assert status["lost_rows"]["out"] == 0


def test_without_what_is_kept_the_same_reset_costs_rows(shelf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.runtime.links.preserved_queue.PreservedQueue.take_back", lambda self, place: None
    )
    arm("drain.all_acked=raise@1")
    run_local(topology(shelf, period=0.01), store(shelf))
    assert len(MemorySink.rows(shelf)) < ROWS


def test_nothing_is_kept_for_longer_than_needed(shelf: str) -> None:
    job = submit_local(topology(shelf, period=0.01), store(shelf))
    try:
        wait(lambda: len(MemorySink.rows(shelf)) == ROWS, "all rows")
        borders = (
            job.regions[next(iter(job.regions))].lives[next(iter(job.plan.regions)).shape.elements[0]].borders
        )
        wait(
            lambda: not any(queue.uncovered for queue in borders.kept.values()), "the kept rows to be let go"
        )
        wait(lambda: borders.log.recorded and not any(borders.log.recorded.values()), "what is stored to go")
    finally:
        job.close()


def test_the_end_of_a_run_without_an_epoch_costs_nothing_of_what_was_sent(shelf: str) -> None:
    job = submit_local(topology(shelf, trigger="manual"), store(shelf))
    wait(lambda: job.status()["elements"]["count"]["rows"] == ROWS, "all rows")
    job.close()
    assert MemorySink.rows(shelf) == []
    assert job.status()["lost_rows"]["out"] == 0
    status = run_local(topology(shelf, trigger="manual"), store(shelf))
    assert [(row["n"], row["seen"]) for row in MemorySink.rows(shelf)] == [(n, n + 1) for n in range(ROWS)]
    assert status["lost_rows"]["out"] == 0


def test_a_program_that_does_not_take_them_any_more_counts_them(shelf: str) -> None:
    job = submit_local(topology(shelf, trigger="manual"), store(shelf))
    wait(lambda: job.status()["elements"]["count"]["rows"] == ROWS, "all rows")
    job.close()
    made = hf.Topology("kept")
    rows = made.source(Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=5), name="rows")
    other = made.source(Rows([(1,)], "n long"), name="other").consistent("r", trigger="manual")
    other.apply(Count, "n long, seen long", name="count").sink(MemorySink(shelf), name="out")
    rows.sink(MemorySink(f"{shelf}_rows"), name="outside")
    status = run_local(made, store(shelf))
    assert MemorySink.rows(f"{shelf}_rows") == []
    assert status["lost_rows"]["out"] == ROWS


def test_a_damaged_record_is_refused_by_name_and_what_was_deleted_is_counted(tmp_path: Any) -> None:
    url = f"file:{tmp_path}/store"
    job = submit_local(topology("damaged", trigger="manual"), url)
    wait(lambda: job.status()["elements"]["count"]["rows"] == ROWS, "all rows")
    job.close()
    kept = sorted(
        (tmp_path / "store/entries/kept@~entered").iterdir()
    )  # packs, and a base if there were many of them
    data = bytearray(kept[-1].read_bytes())
    data[len(data) // 2] ^= 255
    kept[-1].write_bytes(data)
    with pytest.raises(DamagedError, match="entered"):
        run_local(topology("damaged", trigger="manual"), url)
    for file in kept:
        file.unlink()
    status = run_local(topology("damaged", trigger="manual"), url)
    assert MemorySink.rows("damaged") == []
    assert status["lost_rows"]["out"] == ROWS


def test_lines_from_a_socket_are_counted_once_whatever_happens_to_the_region(shelf: str) -> None:
    made = hf.Topology("lines")
    source = hf.TcpLines(0)
    kept = made.source(source, name="lines").replayable(name="kept").consistent("r", period=0.02)

    class Number:
        def __init__(self) -> None:
            self.seen = 0

        def process(self, row: Any, port: int) -> Any:
            self.seen += 1
            return {"n": int(row.line), "seen": self.seen}

    kept.apply(Number, "n long, seen long", name="number").sink(MemorySink(shelf), name="out")
    arm("drain.all_acked=raise@4")
    job = submit_local(made, store(shelf))
    try:
        for first in range(0, 400, 40):
            with socket.create_connection(("127.0.0.1", source.port)) as connection:
                connection.sendall(b"".join(b"%d\n" % n for n in range(first, first + 40)))
            time.sleep(0.02)
        wait(lambda: len(MemorySink.rows(shelf)) == 400, "all lines")
        wait(lambda: job.status()["regions"]["r"]["resets"] == 1, "the reset")
    finally:
        job.close()
    assert sorted(row["n"] for row in MemorySink.rows(shelf)) == list(range(400))
    assert sorted(row["seen"] for row in MemorySink.rows(shelf)) == list(range(1, 401))


def test_explain_says_what_it_costs() -> None:
    from holdfast.compiler.compile import compile_graph
    from holdfast.compiler.explain import explain_text
    from holdfast.runtime.engines.local import LocalEngine

    engine = LocalEngine(1)
    text = explain_text(compile_graph(topology("explained").graph(), engine.analyser()))
    engine.stop()
    assert "a reset and the death of the driver cost none of them" in text
    assert "best effort" not in text
