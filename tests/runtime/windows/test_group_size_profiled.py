"""Window joins choose the size of their groups by what checkpoints cost, and give the same rows whatever it is, also after
a failure in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.checkpoint import group_size
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.telling.events import GroupSizeChosen, RunEvent
from holdfast.testing import MemorySink, arm, compare_rows, disarm, run_local, submit_local

ROWS = 3_000


def program(shelf: str, *, groups: int | None = None) -> hf.Topology:
    made = hf.Topology("windows")
    left = made.source(
        hf.Rows([(n % 40, n) for n in range(ROWS)], "k long, a long", rows_per_step=30), name="left"
    )
    right = made.source(
        hf.Rows([(n % 40, n) for n in range(ROWS)], "k long, b long", rows_per_step=30), name="right"
    )
    left, right = (each.consistent("joined", period=0.02) for each in (left, right))
    joined = left.join(right, "k", keep=hf.latest(rows=1_000), name="joined")
    if groups is not None:
        joined = joined.checkpoint(form=hf.groups(groups))
    joined.sink(MemorySink(shelf), name="out")
    return made


@pytest.fixture(autouse=True)
def _bytes_are_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine takes, small groups must win: so a choice is made in a short run."""
    fitted = group_size.Prices(1e-7, 1e-3)
    monkeypatch.setattr("holdfast.runtime.runs.group_profile.fitted", lambda samples: fitted)


def test_a_size_is_chosen_and_told_and_the_rows_are_the_same(tmp_path: Path) -> None:
    heard: list[RunEvent] = []
    job = submit_local(program("profiled"), f"file:{tmp_path / 'a'}", "available", subscribers=[heard.append])
    job.await_termination()
    (run,) = (r for loop in job.loops.values() for r in loop.worker.runs.values() if isinstance(r, KeyedRun))
    job.close()
    assert run.groups is not None
    told = [event for event in heard if isinstance(event, GroupSizeChosen)]
    assert told[-1].rows == run.groups.rows == run.counts["group_rows"] < 1 << 18
    assert told[-1].seconds_by_rows[str(run.groups.rows)] == min(told[-1].seconds_by_rows.values())
    run_local(program("given", groups=512), f"file:{tmp_path / 'b'}")
    compare_rows(MemorySink.rows("given"), MemorySink.rows("profiled"))


def test_a_size_that_the_user_gives_stays(tmp_path: Path) -> None:
    job = submit_local(program("fixed", groups=64), f"file:{tmp_path}", "available")
    job.await_termination()
    (run,) = (r for loop in job.loops.values() for r in loop.worker.runs.values() if isinstance(r, KeyedRun))
    job.close()
    assert run.groups is None
    assert run.task.logic.group_rows == 64  # type: ignore[attr-defined]


def test_a_failure_in_the_middle_changes_no_row(tmp_path: Path) -> None:
    run_local(program("golden", groups=512), f"file:{tmp_path / 'a'}")
    arm("step.end=raise@20")
    try:
        run_local(program("failed"), f"file:{tmp_path / 'b'}")
    finally:
        hits = disarm()
    assert all(hits.values()), f"{hits}: the fault did not fire"
    compare_rows(MemorySink.rows("golden"), MemorySink.rows("failed"))
