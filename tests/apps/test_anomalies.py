"""The detector's published scores of all series without Spark; of three of them under kill -9, one life after another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from app_data import APPS, NAB, WITHOUT_DATA, all_series, place, series_files

from holdfast.ids import RegionName
from holdfast.store.urls import open_store

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not NAB.is_dir(), reason=WITHOUT_DATA)]

PROGRAM = Path(__file__).with_name("anomalies_program.py")
KILLS = {
    "right after the first epoch": "ckpt.epoch.published=kill",
    "while it makes the output of that epoch visible": "sink.commit.begin=kill",
    "in the middle of its work": "step.end=kill@20",
}


def live(here: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOLDFAST_FP": failpoint}
    command = [sys.executable, str(PROGRAM), str(here)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_the_scores_of_all_series_are_the_published_ones(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert len(all_series()) == 9
    for path in series_files(all_series()):
        shutil.copy(path, tmp_path / "in")
    done = live(tmp_path)
    assert done.returncode == 0, done.stderr
    APPS["anomalies"].check(tmp_path, True)


def test_with_kills_the_scores_are_the_published_ones(tmp_path: Path) -> None:
    app = APPS["anomalies"]
    here = place(tmp_path, app)
    for what, failpoint in KILLS.items():
        died = live(here, failpoint)
        assert died.returncode == -9, f"{what}: {died.stderr}"
        app.check(here, False)
    assert open_store(f"file:{here / 'store'}").epochs(RegionName(app.region)), "it goes on from an epoch"
    done = live(here)
    assert done.returncode == 0, done.stderr
    app.check(here, True)
