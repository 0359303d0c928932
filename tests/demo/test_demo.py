"""The demonstration itself, small: real Spark, real SIGKILL."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path

import pytest

from holdfast.demo.run import run_demo
from holdfast.testing import processes


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_promise_is_kept_under_two_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags: list[str] = []
    fresh = processes.new_tag
    monkeypatch.setattr(processes, "new_tag", lambda prefix: tags.append(fresh(prefix)) or tags[-1])
    before = set(glob.glob(os.path.join(tempfile.gettempdir(), "holdfast-demo-*")))
    result = run_demo(kills=2, seconds=8, seed=11, quiet=True)
    assert result["golden_equal"], result
    assert result["kills"] == 2
    assert result["resets"] >= 1
    assert result["at_least_once"]["missing"] == 0
    assert result["best_effort"]["lost"] <= result["best_effort"]["counted"]
    assert result["exactly_once"]["payments"]["rows"] == result["expected"]["payments"] > 0
    assert {kill["kind"] for kill in result["kill_log"]} == {"worker", "driver"}
    assert all(kill["epoch"] >= 1 for kill in result["kill_log"])
    assert processes.members(tags[0]) == []
    after = set(glob.glob(os.path.join(tempfile.gettempdir(), "holdfast-demo-*")))
    assert after <= before
