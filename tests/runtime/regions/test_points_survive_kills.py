"""kill -9 of operators with points, of composites, and of a start that asks for epochs itself: compared with a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import points_program as program
import pytest
from killed import killed_and_finished, written

from holdfast.errors import RegionParkedError
from holdfast.testing import run_local

FILE = Path(program.__file__)
KILLS = ("step.end=kill@12", "drain.op.flush=kill@2", "ckpt.epoch.published=kill@1", "reset.op.loaded=kill@1")


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_operators_with_points_survive_kills(mode: str, tmp_path: Path) -> None:
    program.write_pieces(tmp_path / "in")
    killed_and_finished(FILE, tmp_path, KILLS, f"points-{mode}")
    found = sorted((row["n"], row["text"]) for row in written(tmp_path, "rows"))
    assert found == list(enumerate(program.TEXTS, 1))


def test_composites_survive_kills(tmp_path: Path) -> None:
    killed_and_finished(FILE, tmp_path, KILLS, "composite")
    for name, first in (("web", 0), ("till", 1000)):
        found = sorted((row["id"], row["seen"]) for row in written(tmp_path, name))
        assert found == [(first + n, n + 1) for n in range(program.CLICKS)]


def test_a_start_that_asks_for_epochs_survives_kills(tmp_path: Path) -> None:
    killed_and_finished(FILE, tmp_path, KILLS, "make_consistent")
    found = sorted((row["id"], row["seen"]) for row in written(tmp_path, "rows"))
    assert found == [(n, n + 1) for n in range(program.BLOCK * program.BLOCKS)]


@pytest.mark.parametrize("mode", ["drain", "token"])
def test_an_operator_whose_input_ends_before_a_point_is_named(mode: Any, tmp_path: Path) -> None:
    program.write_pieces(tmp_path / "in", cut=1)
    settings = {"mode": mode, "trigger": "operator", "drain_timeout": 0.3, "max_consecutive_resets": 1}
    with pytest.raises(RegionParkedError, match=r"texts: operators may not be checkpointed yet \(texts\)"):
        run_local(program.points(str(tmp_path), **settings), store=f"file:{tmp_path}/store")
    assert written(tmp_path, "rows") == []
