"""Keyed operators under kill -9: the driver dies at steps, checkpoints, commits and restores, and nothing is lost or
doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.testing import compare_rows

PROGRAM = Path(__file__).with_name("keyed_verbs_program.py")
OUTPUTS = ("once", "again", "lives", "best", "sixes", "both")
KILLS = [
    ["step.end=kill@9"],
    # An epoch is published first, so that there surely is something to load.
    ["ckpt.epoch.published=kill@1", "ckpt.op.put_done=kill@2", "reset.op.loaded=kill@1"],
    ["sink.commit.applied=kill@4", "ckpt.epoch.published=kill@2", "step.begin=kill@6"],
]


def live(here: Path, failpoint: str = "") -> int:
    environment = {**os.environ, "HOLDFAST_FP": failpoint}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(here)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


def written(here: Path, name: str) -> list[dict[str, Any]]:
    return [row for path in (here / name).glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("golden")
    assert live(here) == 0
    return here


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: kills[0].partition("=")[0])
def test_results_are_what_they_are_without_failures(kills: list[str], golden: Path, tmp_path: Path) -> None:
    for failpoint in kills:
        assert live(tmp_path, failpoint) == -signal.SIGKILL, f"{failpoint} did not fire"
    assert live(tmp_path) == 0
    for name in OUTPUTS:
        rows = written(golden, name)
        assert rows, f"{name} has no rows: nothing is learnt about it"
        compare_rows(rows, written(tmp_path, name), name)
