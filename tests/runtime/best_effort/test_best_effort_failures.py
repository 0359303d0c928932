"""Failures, stops and parked regions outside of regions: who goes on, what is lost, and that all of it is counted."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import RegionParkedError, StepFailed
from holdfast.language.hosted import Operator
from holdfast.language.topology import Topology
from holdfast.runtime.job import Job
from holdfast.runtime.runs.hosted import known_states
from holdfast.sources import Beacon
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, run_local, submit_local

STEP = 5


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[Callable[[str], MemorySink]]:
    """shelf(name) is a sink; `ids(shelf, name)` what is in it."""
    yield lambda name: MemorySink(f"{request.node.name}/{name}")
    for name in ("out", "exact", "beside", "before", "behind"):
        MemorySink.clear(f"{request.node.name}/{name}")


@pytest.fixture
def rows_of(request: pytest.FixtureRequest) -> Callable[[str], list[dict[str, Any]]]:
    return lambda name: MemorySink.rows(f"{request.node.name}/{name}")


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"file:{tmp_path}/store"


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


class Slowly:
    """Hands rows on; each batch takes its time."""

    def __init__(self, seconds: float = 0.005) -> None:
        self._seconds = seconds

    def __call__(self, table: pa.Table) -> pa.Table:
        time.sleep(self._seconds)
        return table.select(["id"])


def keyed(table: pa.Table) -> pa.Table:
    return pa.table({"id": table["id"], "k": pa.array([7] * table.num_rows, pa.int64())})


def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.002)


def events(where: str, kind: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in open_store(where).events() if event.kind == kind]


# --- an element gives up ----------------------------------------------------------------------------------------------


class FailsFrom:
    """Works well until it meets a row."""

    def __init__(self, first: int) -> None:
        self.first = first

    def process(self, row: Any, port: int) -> Any:
        if row.id >= self.first:
            raise ValueError("never again")
        return (row.id,)


def test_rows_left_in_the_queue_of_an_element_that_gave_up_are_counted(
    shelf: Any, rows_of: Any, where: str
) -> None:
    made = Topology("loose")
    numbers = made.source(Beacon(rows=300, rows_per_step=STEP), name="numbers").map_arrow(
        Slowly(0.001), "id long", name="ids"
    )
    numbers.sink(shelf("beside"), name="beside")
    numbers.apply(lambda: FailsFrom(30), "id long", name="fails").sink(shelf("out"), name="out")
    job = submit_local(made, where, until="available")
    with pytest.raises(StepFailed, match="never again"):
        job.await_termination(timeout=60)
    assert ids(rows_of("beside")) == list(range(300)), "its neighbour is not disturbed"
    found = ids(rows_of("out"))
    assert len(found) == len(set(found)), "no row came out twice"
    assert job.status()["lost_rows"] == {"beside": 0, "out": 300 - len(found)}
    assert job.status()["elements"]["fails"]["lost_rows"] == 300 - len(found)
    assert len(events(where, "element.gave_up")) == 1


def test_what_an_element_that_gave_up_has_lost_is_counted_once_over_several_runs(
    shelf: Any, rows_of: Any, where: str
) -> None:
    def made(rows: int, first: int) -> Topology:
        topology = Topology("loose")
        numbers = topology.source(Beacon(rows=rows, rows_per_step=STEP), name="numbers")
        paced = numbers.map_arrow(Slowly(0.005), "id long", name="paced")
        paced.apply(lambda: FailsFrom(first), "id long", name="fails").sink(shelf("out"), name="out")
        return topology

    with pytest.raises(StepFailed):
        run_local(made(600, 30), where)
    lost = 600 - len(rows_of("out"))
    status = run_local(made(650, 1000), where)
    assert status["lost_rows"] == {"out": lost}
    assert ids(rows_of("out"))[-50:] == list(range(600, 650))
    assert sum(told["rows"] for told in events(where, "rows.lost")) == lost


# --- a run is stopped -------------------------------------------------------------------------------------------------


def with_a_full_queue(shelf: Any, seconds: float) -> Topology:
    made = Topology("loose")
    numbers = made.source(Beacon(rows=400, rows_per_step=STEP), name="numbers")
    numbers.sink(shelf("before"), name="before")
    slow = numbers.isolate().map_arrow(Slowly(seconds), "id long", name="slow")
    slow.isolate().map_arrow(Slowly(0.0), "id long", name="last").sink(shelf("out"), name="out")
    return made


def test_a_stop_that_may_not_wait_counts_what_waits_in_queues(shelf: Any, rows_of: Any, where: str) -> None:
    job = submit_local(with_a_full_queue(shelf, 1.0), where)
    wait(lambda: len(rows_of("before")) == 400)
    job.stop(timeout=0.0)
    lost = job.status()["lost_rows"]
    assert lost["before"] == 0
    assert lost["out"] == 400 - len(rows_of("out")) > 0
    assert sum(told["rows"] for told in events(where, "rows.lost")) == lost["out"]
    status = run_local(with_a_full_queue(shelf, 0.0), where)
    assert status["lost_rows"] == lost, "counted once"
    assert len(rows_of("out")) == 400 - lost["out"]


def test_a_stop_that_may_wait_loses_nothing(shelf: Any, rows_of: Any, where: str) -> None:
    job = submit_local(with_a_full_queue(shelf, 0.02), where)
    wait(lambda: len(rows_of("before")) > 50)
    job.stop()
    assert len(rows_of("before")) == len(rows_of("out"))
    status = run_local(with_a_full_queue(shelf, 0.0), where)
    assert sorted(ids(rows_of("out"))) == sorted(ids(rows_of("before"))) == list(range(400))
    assert set(status["lost_rows"].values()) == {0}


# --- a step fails -----------------------------------------------------------------------------------------------------


class FailsOnce:
    """A function that fails at the step with a certain row, after `before` was called."""

    def __init__(self, row: int, before: Callable[[], None] = lambda: None) -> None:
        self._row, self._before = row, before
        self._failed = False

    def __call__(self, table: pa.Table) -> pa.Table:
        time.sleep(0.002)
        if self._row in table["id"].to_pylist() and not self._failed:
            self._failed = True
            self._before()
            raise ValueError("once")
        return table


def aggregated(shelf: Any, fails: FailsOnce, every: float | None) -> Topology:
    """The failure lies behind the aggregate, in the same step."""
    made = Topology("loose")
    numbers = made.source(Beacon(rows=100, rows_per_step=STEP), name="numbers")
    keys = numbers.map_arrow(keyed, "id long, k long", name="keys")
    totals = keys.aggregate("k", n=hf.count(), id=hf.max("id"), name="totals")
    if every is not None:
        totals = totals.checkpoint(every=every)
    totals.map_arrow(fails, "k long, n long, id long", name="fails").sink(shelf("out"), name="out")
    return made


def test_a_failed_step_costs_an_aggregate_the_rows_of_that_step_only(
    shelf: Any, rows_of: Any, where: str
) -> None:
    # max(id) is the last row of its step: 52 is none, 54 is.
    status = run_local(aggregated(shelf, FailsOnce(54), None), where)
    assert status["elements"]["numbers"]["failures"] == 1
    assert rows_of("out")[-1] == {"k": 7, "n": 100 - STEP, "id": 99}
    assert status["lost_rows"] == {"out": STEP}


class Seen(Operator):
    """Counts the rows it has seen; one of them it does not like, once. Some ballast makes its state large."""

    liked = True

    def __init__(self, ballast: int = 0) -> None:
        self.seen = 0
        self.ballast = "x" * ballast

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        if row.id == 52 and not Seen.liked:
            Seen.liked = True
            raise ValueError("once")
        return (row.id, self.seen)


def seen(shelf: Any, ballast: int, every: float | None) -> Topology:
    made = Topology("loose")
    numbers = made.source(Beacon(rows=100, rows_per_step=STEP), name="numbers")
    slow = numbers.map_arrow(Slowly(0.03), "id long", name="slowly")
    counted = slow.apply(lambda: Seen(ballast), "id long, seen long", name="seen")
    if every is not None:
        counted = counted.checkpoint(every=every)
    counted.sink(shelf("out"), name="out")
    return made


def test_a_failed_step_costs_a_python_operator_the_rows_of_that_step_only(
    shelf: Any, rows_of: Any, where: str
) -> None:
    Seen.liked = False
    status = run_local(seen(shelf, 0, None), where)
    lost = status["lost_rows"]["out"]
    assert lost == 100 - len(rows_of("out")) > 0, "rows of that step"
    assert rows_of("out")[-1] == {"id": 99, "seen": 100 - lost}, "what it had seen before is not lost"


def test_a_large_python_operator_goes_back_to_its_checkpoint_and_counts_what_that_costs(
    shelf: Any, rows_of: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_states, "REMEMBERED_BYTES", 1000)
    Seen.liked = False
    status = run_local(seen(shelf, 10_000, None), where)
    lost = status["lost_rows"]["out"]
    assert rows_of("out")[-1] == {"id": 99, "seen": 100 - lost}, "it began anew, having no checkpoint"
    assert lost >= 52


@pytest.mark.parametrize("every", [None, 0.0001], ids=["none", "own checkpoint"])
def test_a_failed_step_whose_version_is_gone_goes_back_to_the_checkpoint(
    every: float | None, shelf: Any, rows_of: Any, where: str
) -> None:
    running: list[Job] = []
    started = threading.Event()

    def remove_live_files() -> None:
        assert started.wait(30)
        shutil.rmtree(running[0]._engine.live / "state")

    made = aggregated(shelf, FailsOnce(54, remove_live_files), every)
    running.append(submit_local(made, where, until="available"))
    started.set()
    while not running[0].await_termination(timeout=60):
        pass
    lost = running[0].status()["lost_rows"]["out"]
    assert rows_of("out")[-1] == {"k": 7, "n": 100 - lost, "id": 99}
    if every is None:
        assert lost == 55, "all it had taken, and the step"
    else:
        assert lost == STEP, "there was a checkpoint after each step"


# --- a region is parked -----------------------------------------------------------------------------------------------


class Broken(Operator):
    """Fails for ever, or until it is mended."""

    mended = False

    def process(self, row: Any, port: int) -> Any:
        if not Broken.mended and port == 0 and row.id >= 20:
            raise ValueError("broken")
        return (row.id, port)


def around_a_region(shelf: Any, rows: int = 60) -> Topology:
    """A best-effort part before a region that breaks, one behind it, one beside it."""
    made = Topology("mixed")
    exact = made.source(Beacon(rows=rows, rows_per_step=STEP), name="exact").consistent(
        "r", period=0.05, max_consecutive_resets=2
    )
    before = made.source(Beacon(rows=rows, rows_per_step=STEP), name="loose").map_arrow(
        Slowly(), "id long", name="slowly"
    )
    before.sink(shelf("before"), name="before")
    broken = made.operator(
        Broken, inputs=[exact, before.autonomous()], schema="id long, port long", name="broken"
    )
    broken.sink(shelf("exact"), name="exact_out")
    exact.autonomous().map_arrow(Slowly(), "id long", name="follows").sink(shelf("behind"), name="behind")
    beside = made.source(Beacon(rows=rows, rows_per_step=STEP), name="aside").isolate()
    beside.map_arrow(Slowly(0.02), "id long", name="besides").sink(shelf("beside"), name="beside")
    return made


@pytest.mark.fault("B07", "O07")
def test_parts_around_a_parked_region_come_to_their_end(shelf: Any, rows_of: Any, where: str) -> None:
    Broken.mended = False
    job = submit_local(around_a_region(shelf), where, until="available")
    with pytest.raises(RegionParkedError, match="broken"):
        while not job.await_termination(timeout=60):
            pass
    assert ids(rows_of("beside")) == ids(rows_of("before")) == list(range(60))
    assert set(ids(rows_of("behind"))) <= set(range(60))
    job.close()
    lost = job.status()["lost_rows"]
    entered = [row["id"] for row in rows_of("exact") if row["port"] == 1]
    assert 60 - len(entered) <= lost["exact_out"], "what entered the region and no epoch holds"
    assert lost["before"] == lost["beside"] == 0
    Broken.mended = True
    status = run_local(around_a_region(shelf), where)
    exact = [row["id"] for row in rows_of("exact") if row["port"] == 0]
    assert exact == list(range(60))
    assert set(ids(rows_of("behind"))) == set(range(60)), "behind a region rows may come twice"
    assert status["lost_rows"]["exact_out"] == 60 - len(entered)


@pytest.mark.fault("B06")
def test_a_parked_region_can_be_resumed_while_the_run_lives(shelf: Any, rows_of: Any, where: str) -> None:
    Broken.mended = False
    job = submit_local(around_a_region(shelf), where, until="available")
    wait(lambda: job.status()["state"] == "parked")
    wait(lambda: len(rows_of("before")) == 60)
    Broken.mended = True
    job.resume()
    assert job.await_termination(timeout=60)
    exact = [row["id"] for row in rows_of("exact") if row["port"] == 0]
    entered = [row["id"] for row in rows_of("exact") if row["port"] == 1]
    assert exact == list(range(60))
    assert max(Counter(entered).values(), default=1) == 1
    assert job.status()["lost_rows"]["exact_out"] == 60 - len(entered)
    assert set(ids(rows_of("behind"))) == set(range(60))
    assert job.status()["regions"]["r"]["phase"] == "stopped"
