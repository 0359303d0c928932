"""An idle source under kill -9: who is idle is stored with each epoch, and nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from idle_program import rows
from killed import killed_and_finished, lived, written

from holdfast.testing import compare_rows

PROGRAM = Path(__file__).with_name("idle_program.py")
KILLS = [
    ["ckpt.epoch.published=kill@2", "reset.op.loaded=kill@1", "step.end=kill@40"],
    ["sink.commit.applied=kill@6", "ckpt.op.put_done=kill@9"],
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("golden")
    assert lived(PROGRAM, here) == 0
    return here


def test_the_steady_source_alone_decides_how_far_results_go(golden: Path) -> None:
    last = rows(400)[-1][0]
    ends = [row["window_end"] for row in written(golden, "windows")]
    assert (last - max(ends)).total_seconds() < 3
    assert sum(row["c"] for row in written(golden, "windows") if row["window_end"] == min(ends)) == 20 + 10
    assert len(written(golden, "sorted")) > 380
    assert len(written(golden, "asof")) > 380


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: kills[0].partition("=")[0])
def test_results_are_what_they_are_without_failures(kills: list[str], golden: Path, tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    for name in ("windows", "sorted", "asof"):
        compare_rows(written(golden, name), written(tmp_path, name), name)
