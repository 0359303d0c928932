"""Elements outside of regions: at most once, the gap counted; own checkpoints; ports between the two worlds."""

from __future__ import annotations

import collections
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import StepFailed
from holdfast.failpoints import FaultInjected, arm, disarm
from holdfast.language.hosted import Operator
from holdfast.language.topology import Topology
from holdfast.sources import Beacon
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, compare_rows, run_local, submit_local

NUMBERS = [(n,) for n in range(60)]


class FailsAt33:
    def process(self, row: Any, port: int) -> Any:
        if row.n == 33:
            raise ValueError("no")
        return (row.n,)


def test_rows_of_a_failed_step_are_lost_and_counted_and_none_comes_twice(shelf: str, tmp_path: Path) -> None:
    made = Topology("loose")
    source = made.source(Rows(NUMBERS, "n long", rows_per_step=5), name="numbers")
    source.isolate().apply(FailsAt33, "n long", name="fails").sink(MemorySink(shelf), name="out")
    status = run_local(made, f"file:{tmp_path}/store")
    seen = [row["n"] for row in MemorySink.rows(shelf)]
    lost = sum(element["lost_rows"] for element in status["elements"].values())
    assert len(set(seen)) == len(seen)
    assert lost > 0
    assert len(seen) + lost == len(NUMBERS)
    events = [e for e in open_store(f"file:{tmp_path}/store").events() if e.kind == "rows.lost"]
    assert sum(event.data["rows"] for event in events) == lost


def test_a_restart_goes_on_behind_the_rows_that_were_handed_out(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"

    def made() -> Topology:
        loose = Topology("loose")
        source = loose.source(Beacon(rows=100, rows_per_step=5), name="numbers")
        source.map_arrow(slowly, "id long", name="slowly").sink(MemorySink(shelf), name="out")
        return loose

    job = submit_local(made(), where)
    wait(lambda: len(MemorySink.rows(shelf)) >= 20)
    job.stop()
    first = len(MemorySink.rows(shelf))
    assert first < 100
    status = run_local(made(), where)
    assert status["elements"]["numbers"]["lost_rows"] == 0
    compare_rows([{"id": n} for n in range(100)], MemorySink.rows(shelf))


def test_an_element_that_fails_for_ever_ends_the_run_with_its_reason(shelf: str) -> None:
    class Never:
        def process(self, row: Any, port: int) -> Any:
            raise ValueError("never in my life")

    made = Topology("loose")
    source = made.source(Rows(NUMBERS, "n long", rows_per_step=2), name="numbers")
    source.map_arrow(slowly_n, "n long", name="slowly").apply(Never, "n long", name="never").sink(
        MemorySink(shelf), name="out"
    )
    with pytest.raises(StepFailed, match="never in my life"):
        run_local(made)


class Counter:
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return (row.n, self.seen)


def test_an_operator_with_its_own_checkpoint_remembers_over_a_restart(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"

    def made(rows: Any) -> Topology:
        loose = Topology("loose")
        source = loose.source(Rows(rows, "n long", rows_per_step=5), name="numbers")
        counted = source.apply(Counter, "n long, seen long", name="counter").checkpoint(every=0.01)
        counted.sink(MemorySink(shelf), name="out")
        return loose

    run_local(made(NUMBERS[:20]), where)
    run_local(made(NUMBERS), where)
    compare_rows([{"n": n, "seen": n + 1} for (n,) in NUMBERS], MemorySink.rows(shelf))
    assert "operator.checkpoint" in [event.kind for event in open_store(where).events()]


def totals(shelf: str, rows: int, where: str) -> None:
    """Count the rows of seven keys, with a checkpoint after every step."""
    made = Topology("loose")
    source = made.source(Rows([(n % 7,) for n in range(rows)], "k long", rows_per_step=5), name="rows")
    counted = source.aggregate("k", count=hf.count(), name="counted").checkpoint(every=0.0001)
    counted.sink(MemorySink(shelf), name="out")
    run_local(made, where)


def test_many_runs_one_after_the_other_never_use_a_name_twice(shelf: str, tmp_path: Path) -> None:
    rows = 0
    for more in (5, 15, 10, 40) * 3:
        rows += more
        totals(shelf, rows, f"file:{tmp_path}/store")
        newest = {row["k"]: row["count"] for row in MemorySink.rows(shelf)}
        assert newest == dict(collections.Counter(n % 7 for n in range(rows)))


def test_segments_of_a_run_that_died_before_its_record_are_in_nobodys_way(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"
    for rows in (20, 40):  # the second run has something to do however far the first came
        arm("ckpt.op.put_done=raise")
        try:
            with pytest.raises(FaultInjected):
                totals(shelf, rows, where)
        finally:
            disarm()
    assert list(tmp_path.glob("store/entries/counted@*/*.seg")), "segments without a record"
    totals(shelf, 60, where)
    assert MemorySink.rows(shelf)


def test_without_a_checkpoint_it_starts_afresh(shelf: str, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/store"

    def made(rows: Any) -> Topology:
        loose = Topology("loose")
        source = loose.source(Rows(rows, "n long", rows_per_step=5), name="numbers")
        source.apply(Counter, "n long, seen long", name="counter").sink(MemorySink(shelf), name="out")
        return loose

    run_local(made(NUMBERS[:20]), where)
    run_local(made(NUMBERS), where)
    assert MemorySink.rows(shelf)[-1] == {"n": 59, "seen": 40}


class Enriches(Operator):
    """Data rows on port 0 (consistent), a hint on port 1 (autonomous)."""

    def __init__(self) -> None:
        self.hint = 0
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            self.hint = row.n
            return None
        self.seen += 1
        return (row.n, self.seen)


def test_an_autonomous_stream_may_enter_a_consistent_operator_by_a_port_of_its_own(
    shelf: str, tmp_path: Path
) -> None:
    made = Topology("mixed")
    exact = made.source(Rows(NUMBERS, "n long", rows_per_step=5), name="exact").consistent("r", period=0.02)
    loose = made.source(Rows(NUMBERS[:7], "n long", rows_per_step=2), name="loose")
    enriched = made.operator(
        Enriches, inputs=[exact, loose.autonomous()], schema="n long, seen long", name="enrich"
    )
    enriched.sink(MemorySink(shelf), name="out")
    status = run_local(made, f"file:{tmp_path}/store")
    compare_rows([{"n": n, "seen": n + 1} for (n,) in NUMBERS], MemorySink.rows(shelf))
    assert status["regions"]["r"]["phase"] == "stopped"


class Throttled(Operator):
    """Counts data rows; rows of the control port confirm what came out."""

    fails = False

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            self.confirmed += 1
            return None
        if row.n == 40 and Throttled.fails:
            Throttled.fails = False
            raise ValueError("once")
        self.sent += 1
        return (row.n, self.sent)


class Confirms(Operator):
    def process(self, row: Any, port: int) -> Any:
        return (row.n,)


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_a_cycle_through_a_control_port_survives_a_failure(shelf: str, tmp_path: Path, mode: str) -> None:
    Throttled.fails = True
    made = Topology("cycle")
    source = made.source(Rows(NUMBERS, "n long", rows_per_step=5), name="numbers")
    rows = source.consistent("r", period=0.02, mode=mode).map_arrow(slowly_n, "n long", name="slowly")
    back = made.feedback("n long")
    sent = made.operator(
        Throttled, inputs=[rows], control=[back.stream], schema="n long, sent long", name="throttled"
    )
    confirmed = sent.apply(Confirms, "n long", name="confirms")
    back.complete(confirmed)
    sent.sink(MemorySink(shelf), name="out")
    status = run_local(made, f"file:{tmp_path}/store")
    assert not Throttled.fails
    assert status["regions"]["r"]["resets"] == 1
    compare_rows([{"n": n, "sent": n + 1} for (n,) in NUMBERS], MemorySink.rows(shelf))


def slowly(table: pa.Table) -> pa.Table:
    time.sleep(0.02)
    return table.select(["id"])


def slowly_n(table: pa.Table) -> pa.Table:
    time.sleep(0.01)
    return table.select(["n"])


def wait(condition: Any, seconds: float = 20.0) -> None:
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.005)
