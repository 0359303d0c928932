"""Own checkpoints outside of regions: taken between steps, stored while steps go on, the most overdue first; killed in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killed import killed_and_finished, written

import holdfast as hf
from holdfast.checkpoint import own_records
from holdfast.ids import OperatorName
from holdfast.runtime.job import Job
from holdfast.runtime.telling.events import OperatorCheckpointed, RunEvent
from holdfast.store.urls import open_store
from holdfast.testing import arm, disarm, run_local, submit_local

PROGRAM = Path(__file__).with_name("own_checkpoints_program.py")
ROWS = [(n,) for n in range(600)]


class Counted(hf.Operator):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> tuple[int, int]:
        self.seen += 1
        return row.id, self.seen


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


def program(every: float, name: str) -> hf.Topology:
    made = hf.Topology("background")
    rows = made.source(hf.Rows(ROWS, "id long", rows_per_step=2), name="rows")
    counted = rows.apply(Counted(), "id long, seen long", name="counted").checkpoint(every=every)
    counted.sink(hf.MemorySink(name), name="out")
    return made


def test_steps_go_on_while_a_checkpoint_is_stored(tmp_path: Path) -> None:
    arm("ckpt.op.put=sleep:1@1")
    meanwhile: list[int] = []
    jobs: list[Job] = []

    def hear(event: RunEvent) -> None:
        """Called by the element when it hears that a checkpoint is stored."""
        if isinstance(event, OperatorCheckpointed) and jobs:
            known = own_records.load(open_store(f"file:{tmp_path}"), "counted")
            assert known is not None
            (loop,) = (loop for loop in jobs[0].loops.values() if "counted" in loop.worker.runs)
            meanwhile.append(loop.metrics.rows - known.rows)

    job = submit_local(program(0.01, "going on"), f"file:{tmp_path}", "available", subscribers=[hear])
    jobs.append(job)
    job.await_termination()
    job.close()
    stored = own_records.load(open_store(f"file:{tmp_path}"), "counted")
    assert stored is not None
    assert stored.rows == len(ROWS)
    assert max(meanwhile) > 0, "no step was done while a checkpoint took a second to be stored"
    assert meanwhile[-1] == 0
    assert [row["seen"] for row in hf.MemorySink.rows("going on")] == list(range(1, len(ROWS) + 1))


def test_what_a_checkpoint_holds_is_the_state_when_it_was_taken(tmp_path: Path) -> None:
    """Rows that came while it was stored are in the next one, or counted as lost: here the driver ends without one."""
    arm("ckpt.op.put=sleep:0.5@1;step.begin=raise@1000000")
    job = submit_local(program(0.01, "taken"), f"file:{tmp_path}", "available")
    job.await_termination()
    job.close()
    status = run_local(program(0.01, "taken again"), f"file:{tmp_path}")
    assert dict(status.lost_rows) == {"out": 0}


def test_several_that_are_due_are_stored_one_after_another_by_priority(tmp_path: Path) -> None:
    made = hf.Topology("several")
    rows = made.source(hf.Rows(ROWS, "id long", rows_per_step=2), name="rows")
    rows.aggregate("id", n=hf.count(), name="seldom").checkpoint(every=3.0).sink(
        hf.MemorySink("s1"), name="s1"
    )
    rows.aggregate("id", m=hf.count(), name="often").checkpoint(every=0.01).sink(
        hf.MemorySink("s2"), name="s2"
    )
    heard: list[str] = []
    run_local(
        made,
        f"file:{tmp_path}",
        subscribers=[lambda e: heard.append(e.operator) if isinstance(e, OperatorCheckpointed) else None],
    )
    assert heard.count("often") > heard.count("seldom") >= 1
    store = open_store(f"file:{tmp_path}")
    for name in ("seldom", "often"):
        found = own_records.load(store, OperatorName(name))
        assert found is not None
        assert found.rows == len(ROWS)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(["ckpt.op.put=kill@2"], id="while it is stored"),
        pytest.param(["ckpt.op.put_done=kill@3"], id="when it is stored and not recorded"),
        pytest.param(["step.begin=kill@40", "ckpt.op.put=kill@2"], id="in a step, then while it is stored"),
    ],
)
def test_killed_in_the_middle_everything_that_is_missing_is_counted(tmp_path: Path, kills: list[str]) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    rows = sorted(written(tmp_path, "out"), key=lambda row: row["id"])
    lost = int((tmp_path / "lost").read_text())
    missing = 400 - len({row["id"] for row in rows})
    assert len(rows) == len({row["id"] for row in rows}), "no row comes twice"
    assert missing <= lost
    # Whatever the operator has not counted is lost as well, and counted.
    assert 400 - rows[-1]["seen"] <= lost
    assert rows[-1]["seen"] > 0
