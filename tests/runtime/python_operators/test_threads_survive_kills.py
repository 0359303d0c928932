"""Operators with threads of their own under kill -9: every row once, whatever moment the driver dies at."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed import killed_and_finished, written
from threads_program import ROWS

PROGRAM = Path(__file__).with_name("threads_program.py")
KILLS = ("step.end=kill@30", "drain.op.flush=kill@3", "drain.all_acked=kill@2", "reset.op.loaded=kill@1")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_threads_and_their_permits_survive_kills(mode: str, tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, KILLS, mode)
    assert sorted(row["n"] for row in written(tmp_path, "rows")) == list(range(ROWS))
