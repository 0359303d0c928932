"""`.replayable()` under kill -9: what was recorded is in the output exactly once; what was not is counted."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import replayable_program as program
from killed import lived, written

from holdfast.ids import ElementName
from holdfast.runtime.links.entered_log import EnteredLog
from holdfast.store.urls import open_store
from holdfast.testing import run_local

FILE = Path(program.__file__)
KILLS = (
    "entered.recorded=kill@1",  # fires whatever the pace
    "entered.record=kill@4",
    "entered.recorded=kill@3",
    "entered.recorded=kill@9",
    "drain.all_acked=kill@2",
    "ckpt.epoch.published=kill@2",
    "gc.delete=kill@2",
)


def recorded(here: Path) -> set[int]:
    """Rows that are in the store of a run that was killed."""
    log = EnteredLog(open_store(f"file:{here}/store"), ElementName("kept"), 0, here / "nowhere")
    files = [data for each in log.read() for _, data in each.files]
    assert all(isinstance(data, bytes) for data in files), "small batches lie inside of the writes"
    return {n for data in files for n in pq.read_table(io.BytesIO(data))["n"].to_pylist()}


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_what_was_recorded_comes_out_once(mode: str, tmp_path: Path) -> None:
    must_come: set[int] = set()
    lives = []
    for failpoint in KILLS:
        lives.append(lived(FILE, tmp_path, failpoint, mode))
        must_come |= recorded(tmp_path)
    assert lives[0] == -signal.SIGKILL
    assert lives.count(-signal.SIGKILL) >= 2, "the kills did not come about"
    status = run_local(program.build(mode, str(tmp_path)), store=f"file:{tmp_path}/store").as_dict()
    found = sorted(written(tmp_path, "rows"), key=lambda row: row["seen"])
    assert [row["seen"] for row in found] == list(range(1, len(found) + 1))
    rows = [row["n"] for row in found]
    assert len(set(rows)) == len(rows), "doubled"
    assert must_come <= set(rows)
    assert must_come, "nothing is learnt"
    assert program.ROWS - len(rows) <= status["lost_rows"]["out"]


def test_a_kill_between_two_steps_costs_nothing_that_had_entered(tmp_path: Path) -> None:
    """Without any epoch."""
    assert lived(FILE, tmp_path, "drain.begin=kill@1", "async") == -signal.SIGKILL
    before = recorded(tmp_path)
    status = run_local(program.build("async", str(tmp_path)), store=f"file:{tmp_path}/store").as_dict()
    rows = {row["n"] for row in written(tmp_path, "rows")}
    assert before <= rows
    assert program.ROWS - len(rows) <= status["lost_rows"]["out"]
    assert recorded(tmp_path) == set() or max(recorded(tmp_path)) < program.ROWS
