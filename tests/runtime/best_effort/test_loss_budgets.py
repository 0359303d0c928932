"""Loss budgets at work: what is lost is told, parked, or the last that is lost."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import loss_budget_program as program
import pyarrow.parquet as pq
import pytest
from killed import killed_and_finished, lived, undisturbed

import holdfast as hf
from holdfast.cli.status.show import show_status
from holdfast.errors import BudgetExceededError, ConfigError, TopologyError
from holdfast.ids import RegionName
from holdfast.language.connectors import Slice
from holdfast.runtime.job import Job
from holdfast.runtime.telling.loss_events import BudgetExceeded, BudgetResumed
from holdfast.runtime.telling.stored_events import decode
from holdfast.sources import Beacon
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, run_local, submit_local

PROGRAM = Path(program.__file__)


STEP = 5


class Fails:
    """At some rows, the first time that they come."""

    bad: ClassVar[set[int]] = set()
    reached: ClassVar[int] = -1
    """The last row it was given before it failed for the first time."""

    def process(self, row: Any, port: int) -> Any:
        Fails.reached = row.id
        if row.id in self.bad:
            self.bad.discard(row.id)
            Fails.reached = EVERYTHING
            raise ValueError("not this row")
        return (row.id,)


EVERYTHING = 1 << 60


class OneAfterAnother(Beacon):
    """Gives rows only when `Fails` has worked on those before: a step that fails has no more rows than one slice, at any pace."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows=rows, rows_per_step=STEP)
        self._given = -1

    def next_slice(self) -> Slice | None:
        patience = time.monotonic() + 10  # nobody waits for ever if it is stopped in between
        while Fails.reached < self._given and time.monotonic() < patience:
            time.sleep(0.001)
        piece = super().next_slice()
        self._given = self._given if piece is None else piece.end - 1
        return piece


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"file:{tmp_path}/store"


def loose(shelf: str, *bad: int, n: int = 100, **budget: Any) -> hf.Topology:
    Fails.bad, Fails.reached = set(bad), -1
    made = hf.Topology("loose")
    numbers = made.source(OneAfterAnother(n), name="numbers")
    fails = numbers.apply(Fails, "id long", name="fails").may_lose(**budget)
    fails.sink(MemorySink(shelf), name="out")
    return made


def told(where: str, kind: type) -> list[Any]:
    found = [decode(event.kind, event.data) for event in open_store(where).events()]
    return [event for event in found if isinstance(event, kind)]


def wait(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.005)


def ids(shelf: str) -> list[int]:
    return [row["id"] for row in MemorySink.rows(shelf)]


# --- warn -------------------------------------------------------------------------------------------------------------


def test_a_warning_is_told_once_and_the_run_goes_on(
    shelf: str, where: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        status = run_local(loose(shelf, 33, 70, rows=3), where)
    lost = status["lost_rows"]["out"]
    assert lost > 3
    assert len(ids(shelf)) == 100 - lost
    (event,) = told(where, BudgetExceeded)
    assert (event.operator, event.then) == ("fails", "warn")
    assert sum("than may be" in record.getMessage() for record in caplog.records) == 1
    assert status["loss_budgets"]["fails"]["lost"] == lost
    show_status(status.as_dict())
    shown = " ".join(capsys.readouterr().out.split())
    assert f"loss budget of fails: {lost} rows lost of 3 rows that may be: exceeded, warn" in shown


def test_within_the_budget_nothing_is_told(shelf: str, where: str) -> None:
    status = run_local(loose(shelf, 33, rows=1000), where)
    assert status["loss_budgets"]["fails"]["state"] == "within"
    assert not told(where, BudgetExceeded)
    assert status["lost_rows"]["out"] == status["loss_budgets"]["fails"]["lost"] > 0


def test_a_share_is_of_all_rows_of_all_runs(shelf: str, where: str) -> None:
    status = run_local(loose(shelf, 2, n=40, share=0.9), where)
    lost = status["lost_rows"]["out"]
    assert status["loss_budgets"]["fails"]["share"] == pytest.approx(lost / 40, abs=1e-6)
    status = run_local(loose(shelf, n=400, share=0.9), where)
    assert status["loss_budgets"]["fails"]["share"] == pytest.approx(lost / 400, abs=1e-6)


def test_rows_lost_behind_a_stream_do_not_count_against_it(shelf: str, where: str) -> None:
    Fails.bad, Fails.reached = {33}, -1
    made = hf.Topology("loose")
    numbers = made.source(OneAfterAnother(50), name="numbers").may_lose(rows=0)
    numbers.apply(Fails, "id long", name="fails").may_lose(rows=0).sink(MemorySink(shelf), name="out")
    status = run_local(made, where)
    assert status["loss_budgets"]["numbers"]["lost"] == 0
    assert status["loss_budgets"]["fails"]["lost"] == status["lost_rows"]["out"] > 0
    assert [event.operator for event in told(where, BudgetExceeded)] == ["fails"]


# --- park -------------------------------------------------------------------------------------------------------------


def test_a_parked_stream_delivers_nothing_more_and_goes_on_when_somebody_resumes(
    shelf: str, where: str
) -> None:
    made = loose(shelf, 33, rows=3, then="park")
    beside = made.source(Beacon(rows=60, rows_per_step=5), name="others")
    beside.sink(MemorySink(f"{shelf}-beside"), name="beside")
    job = submit_local(made, where, until="available")
    wait(lambda: job.status().state == "parked" and len(MemorySink.rows(f"{shelf}-beside")) == 60)
    before = ids(shelf)
    assert all(row < 33 for row in before), "nothing behind the loss is delivered"
    with pytest.raises(BudgetExceededError, match=r"'fails' is parked: \d+ rows are lost, 3 may be"):
        job.await_termination(timeout=60)
    assert ids(shelf) == before
    job.resume()
    assert job.await_termination(timeout=60)
    lost = job.status()["lost_rows"]["out"]
    assert len(ids(shelf)) == 100 - lost
    assert job.status()["loss_budgets"]["fails"]["lost"] == 0, "the budget is whole again"
    assert [event.operator for event in told(where, BudgetResumed)] == ["fails"]
    MemorySink.clear(f"{shelf}-beside")


def test_a_stream_stays_parked_over_runs_until_it_may_lose_more(shelf: str, where: str) -> None:
    with pytest.raises(BudgetExceededError):
        run_local(loose(shelf, 33, n=1000, rows=3, then="park"), where)
    delivered = len(ids(shelf))
    assert delivered < 1000
    with pytest.raises(BudgetExceededError):
        run_local(loose(shelf, n=1000, rows=3, then="park"), where)
    assert len(ids(shelf)) == delivered, "not a row"
    status = run_local(loose(shelf, n=1000, rows=900, then="park"), where)
    assert status.state == "ended"
    (first, again) = told(where, BudgetExceeded)
    assert first.lost == again.lost == status["lost_rows"]["out"], "to be parked and stopped costs nothing"
    assert len(ids(shelf)) == len(set(ids(shelf))) == 1000 - first.lost


def test_a_parked_run_can_be_stopped(shelf: str, where: str) -> None:
    job = submit_local(loose(shelf, 33, rows=0, then="park"), where)
    wait(lambda: job.status().state == "parked")
    job.stop(timeout=60)
    status = run_local(loose(shelf, rows=99), where)
    assert status["lost_rows"]["out"] == told(where, BudgetExceeded)[0].lost, "what was taken is worked off"
    assert len(ids(shelf)) == 100 - status["lost_rows"]["out"]


# --- consistent -------------------------------------------------------------------------------------------------------


def test_a_stream_becomes_consistent_in_the_same_run_and_loses_nothing_more(shelf: str, where: str) -> None:
    seen: list[Job] = []
    made = loose(shelf, 33, rows=3, then="consistent")
    status = run_local(made, where, on_start=seen.append)
    assert len(seen) == 2, "it was stopped in order and started again"
    assert list(status.regions) == ["numbers"]
    assert status["loss_budgets"]["fails"]["state"] == "consistent"
    assert len(ids(shelf)) == len(set(ids(shelf))) == 100 - status["lost_rows"]["out"]
    assert status["lost_rows"]["out"] == told(where, BudgetExceeded)[0].lost


def test_it_is_consistent_in_every_run_after(shelf: str, where: str) -> None:
    first = run_local(loose(shelf, 33, rows=3, then="consistent"), where)
    more = loose(shelf, 150, n=300, rows=3, then="consistent")
    status = run_local(more, where)
    assert list(status.regions) == ["numbers"]
    assert status.regions["numbers"].resets == 1, "a failure costs a reset, and no row"
    assert status["lost_rows"] == first["lost_rows"]
    assert len(set(ids(shelf))) == 300 - first["lost_rows"]["out"]


class Counts(Fails):
    """How many rows it has seen."""

    def __init__(self) -> None:
        self.n = 0

    def process(self, row: Any, port: int) -> Any:
        super().process(row, port)
        self.n += 1
        return (row.id, self.n)


def test_states_go_on_in_the_region_and_are_stored_there(shelf: str, where: str) -> None:
    def made(n: int) -> hf.Topology:
        topology = hf.Topology("loose")
        Fails.reached = -1
        numbers = topology.source(OneAfterAnother(n), name="numbers")
        keyed = numbers.map_arrow(program.of_one_key, "id long, k long", name="keyed")
        sizes = keyed.aggregate("k", rows=hf.count(), name="sizes")
        sizes.sink(MemorySink(f"{shelf}-sizes"), name="sizes_out")
        counts = numbers.apply(Counts, "id long, n long", name="counts").checkpoint(every=3600)
        counts.may_lose(rows=3, then="consistent").sink(MemorySink(shelf), name="out")
        return topology

    Fails.bad = {33}
    status = run_local(made(100), where)
    assert list(status.regions) == ["numbers"]
    lost = status["lost_rows"]["out"]
    assert status["lost_rows"] == {"sizes_out": 0, "out": lost}, "to become consistent costs nothing"
    assert sorted(row["n"] for row in MemorySink.rows(shelf)) == list(range(1, 101 - lost))
    Fails.bad = {150}
    status = run_local(made(300), where)
    assert sorted(row["n"] for row in MemorySink.rows(shelf)) == list(range(1, 301 - lost))
    assert max(row["rows"] for row in MemorySink.rows(f"{shelf}-sizes")) == 300
    assert status["lost_rows"]["out"] == lost
    store, region = open_store(where), RegionName("numbers")
    for epoch in store.epochs(region):
        assert b"~autonomous" not in store.manifest(region, epoch), (
            "no epoch refers to what was stored outside"
        )
    MemorySink.clear(f"{shelf}-sizes")


def test_a_run_that_was_submitted_goes_on_and_the_next_is_consistent(shelf: str, where: str) -> None:
    job = submit_local(loose(shelf, 33, rows=3, then="consistent"), where, until="available")
    assert job.await_termination(timeout=60)
    assert not job.status().regions
    assert list(run_local(loose(shelf, rows=3, then="consistent"), where).regions) == ["numbers"]


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(fast_directory: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="loss-", dir=fast_directory))


def rows_in(directory: Path) -> list[dict[str, Any]]:
    files = [path for path in directory.glob("**/*.parquet") if not path.name.startswith(("_", "."))]
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def outcome(here: Path) -> tuple[dict[str, Any], list[int]]:
    return json.loads((here / "status.json").read_text()), sorted(row["id"] for row in rows_in(here / "out"))


@pytest.mark.fault("R09")
def test_kills_use_a_budget_up_and_then_cost_nothing_more(here: Path) -> None:
    kills = ["step.begin=kill@4", "step.begin=kill@4", "step.begin=kill@4"]
    for kill in kills:
        assert lived(PROGRAM, here, kill, "consistent", "12") != 0
    # 15 rows or some more are gone: the fourth life finds that, and is killed as a region.
    killed_and_finished(PROGRAM, here, ["step.end=kill@9", "ckpt.epoch.published=kill@1"], "consistent", "12")
    status, found = outcome(here)
    assert len(found) == len(set(found))
    lost = status["lost_rows"]["out"]
    assert 15 <= lost <= 15 + 2 * program.STEP, "a step more, if it dies before it has become a region"
    assert lost - program.STEP <= program.ROWS - len(found) <= lost, (
        "what one step held may have come out all the same"
    )
    assert status["loss_budgets"]["ids"]["state"] == "consistent"
    assert list(status["regions"]) == ["numbers"]
    counted = max(row["rows"] for row in rows_in(here / "counts"))
    assert counted >= program.ROWS - status["lost_rows"]["counts_out"], (
        "what is not in the count is counted as lost"
    )
    assert counted <= program.ROWS - 15


@pytest.mark.fault("R09")
def test_kills_park_a_stream_before_it_delivers_another_row(here: Path) -> None:
    for _ in range(3):
        assert lived(PROGRAM, here, "step.begin=kill@4", "park", "12") != 0
    undisturbed(PROGRAM, here, "park", "12")
    status, found = outcome(here)
    assert "15 rows are lost, 12 may be" in status["parked"]
    undisturbed(PROGRAM, here, "park", "12")
    assert outcome(here)[1] == found
    undisturbed(PROGRAM, here, "park", "15")
    status, found = outcome(here)
    assert program.ROWS - len(found) == status["lost_rows"]["out"] == 15


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "says nothing"),
        ({"rows": -1}, "rows must be"),
        ({"rows": 1.5}, "rows must be"),
        ({"rows": True}, "rows must be"),
        ({"share": 1.0}, "share must be"),
        ({"share": -0.1}, "share must be"),
        ({"share": "1%"}, "share must be"),
        ({"seconds": -1}, "seconds must be"),
        ({"rows": 1, "then": "stop"}, "then='stop' is not known"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        hf.Topology("t").source(Beacon(rows=1), name="n").may_lose(**given)


def test_in_a_region_there_is_nothing_to_count(shelf: str, where: str) -> None:
    made = hf.Topology("exact")
    made.source(Beacon(rows=5), name="n").consistent("r").may_lose(rows=1).sink(MemorySink(shelf), name="out")
    with pytest.raises(TopologyError, match="'n' belongs to region 'r', in which nothing is lost"):
        run_local(made, where)


def test_what_cannot_become_consistent_is_refused_before_anything_runs(shelf: str, where: str) -> None:
    made = hf.Topology("lines")
    lines = made.source(hf.TcpLines(port=0), name="lines").may_lose(rows=1, then="consistent")
    lines.sink(MemorySink(shelf), name="out")
    with pytest.raises(TopologyError, match=r"to become consistent .* cannot replay rows"):
        submit_local(made, where)
    made = hf.Topology("unnamed")
    made.source(Beacon(rows=5)).may_lose(rows=1, then="consistent").sink(MemorySink(shelf), name="out")
    with pytest.raises(TopologyError, match=r"to become consistent .* has no name of its own"):
        submit_local(made, f"{where}-2")
    with pytest.raises(ConfigError, match="needs a store"):
        run_local(loose(shelf, rows=1, then="consistent"))
