"""Joins under kill -9: the driver dies at steps, checkpoints, commits and restores, and no pair is lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from killed import killed_and_finished, lived, written

from holdfast.testing import compare_rows

PROGRAM = Path(__file__).with_name("join_program.py")
KILLS = [
    ["ckpt.epoch.published=kill@1", "ckpt.op.put_done=kill@2", "reset.op.loaded=kill@1"],
    ["sink.commit.applied=kill@4", "ckpt.epoch.published=kill@2", "step.begin=kill@6"],
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("golden")
    assert lived(PROGRAM, here) == 0
    return here


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: kills[0].partition("=")[0])
def test_joins_are_what_they_are_without_failures(kills: list[str], golden: Path, tmp_path: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, kills)
    for name in ("interval", "asof", "ordered"):
        rows = written(golden, name)
        assert len(rows) > 100, f"{name} has few rows: little is learnt about it"
        compare_rows(rows, written(tmp_path, name), name)


def test_a_join_by_arrival_meets_what_it_kept_before_the_kill(tmp_path: Path) -> None:
    """What meets what follows the pace of the streams; but a window lost or doubled would show."""
    killed_and_finished(PROGRAM, tmp_path, KILLS[0])
    rows = written(tmp_path, "arrival")
    assert max(Counter((row["v"], row["w"]) for row in rows).values()) == 1, "a pair came out twice"
    met = Counter(row["w"] for row in rows)
    late = [count for w, count in met.items() if w > 100]
    assert len(late) > 280
    assert set(late) == {10}, "all windows are full by then, and stay so"
