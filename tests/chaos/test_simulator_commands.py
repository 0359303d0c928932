"""The commands of both simulators: `python -m holdfast.chaos.simulator` and `python -m holdfast.chaos.mixed`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from holdfast.chaos import simulator
from holdfast.chaos.mixed import simulator as mixed


@pytest.mark.parametrize(
    ("module", "seed", "told"),
    [("simulator", 17, "controller (new) <- Start"), ("mixed", 18, "run 1 begins with")],
)
def test_a_seed_tells_the_same_story_in_every_process(module: str, seed: int, told: str) -> None:
    stories = {
        subprocess.run(
            [sys.executable, "-m", f"holdfast.chaos.{module}", "--seed", str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    (story,) = stories
    assert told in story


@pytest.mark.parametrize("main", [simulator.main, mixed.main])
def test_the_command_counts_schedules(main: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--count", "3"]) == 0
    assert capsys.readouterr().out.startswith("3 schedules, ")
