"""A loss budget of a stream that enters a region sees what is lost at the entrance: rows that came after the epoch the region goes back to."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from typing import Any

import budget_at_entrance_program as program
import pytest
from faults import DRIVER_KILLED, fired

from holdfast.errors import BudgetExceededError
from holdfast.runtime.telling.loss_events import BudgetExceeded
from holdfast.runtime.telling.stored_events import decode
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, run_local, submit_local


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"file:{tmp_path}/store"


def test_what_a_reset_costs_at_the_entrance_counts(shelf: str, where: str) -> None:
    """The row that fails comes by the port; nothing was stored before it."""
    status = run_local(program.build(MemorySink(shelf), bad=33, rows=3), where)
    lost = status["lost_rows"]["out"]
    assert lost > 3
    budget = status["loss_budgets"]["ids"]
    assert (budget["lost"], budget["state"]) == (lost, "exceeded, warn")
    events = [decode(event.kind, event.data) for event in open_store(where).events()]
    assert [event.operator for event in events if isinstance(event, BudgetExceeded)] == ["ids"]


def test_a_share_is_of_all_that_passed_the_stream(shelf: str, where: str) -> None:
    status = run_local(program.build(MemorySink(shelf), bad=33, share=0.999), where)
    lost = status["lost_rows"]["out"]
    assert status["loss_budgets"]["ids"]["share"] == round(lost / program.ROWS, 6)


def test_a_budget_that_is_not_just_before_the_region_does_not_count_it(shelf: str, where: str) -> None:
    status = run_local(program.build(MemorySink(shelf), bad=33, at="loose", rows=3), where)
    assert status["lost_rows"]["out"] > 3
    assert status["loss_budgets"]["loose"]["lost"] == 0


def test_it_parks_what_feeds_the_region_and_a_person_resumes(shelf: str, where: str) -> None:
    made = program.build(MemorySink(shelf), bad=33, many=400, rows=3, then="park")
    job = submit_local(made, where, until="available")
    try:
        wait(
            lambda: job.status()["loss_budgets"]["ids"]["state"] == "exceeded, park",
            "the stream to be parked",
        )
        lost = job.status()["lost_rows"]["out"]
        job.resume()
        wait(lambda: job.status()["loss_budgets"]["ids"]["lost"] == 0, "the budget to be whole")
        assert job.await_termination(timeout=60)
    finally:
        job.close()
    assert len(MemorySink.rows(shelf)) == 400 + program.ROWS - lost


def test_what_a_death_of_the_driver_costs_there_counts_in_the_next_run(tmp_path: Path, where: str) -> None:
    child = subprocess.Popen([sys.executable, str(Path(program.__file__)), str(tmp_path)])
    try:
        wait((tmp_path / "entered").exists, "rows to enter the region")
    finally:
        child.send_signal(SIGKILL)
        assert child.wait() == -SIGKILL
    fired(DRIVER_KILLED)
    made = program.build(MemorySink("after-kill"), rows=3, then="park")
    with pytest.raises(BudgetExceededError, match="'ids' is parked: 40 rows are lost, 3 may be"):
        run_local(made, where)
    MemorySink.clear("after-kill")
