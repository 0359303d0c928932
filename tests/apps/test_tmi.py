"""Clusters of positions, batch after batch: the state falls to almost nothing with each, and epochs come right then.

What is stored is compared with periodic epochs, as many, in a run of the same length. Time is that of the input: the machine's speed
does not matter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from app_data import APPS, GEOLIFE, WITHOUT_DATA, place, prepare_tmi
from paced import Pace, pace_sources, run_paced

from holdfast.cli.main import run_command
from holdfast.ids import RegionName
from holdfast.runtime.telling import events as e
from holdfast.store.urls import open_store

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not GEOLIFE.is_dir(), reason=WITHOUT_DATA)]

APP = APPS["tmi"]
PROGRAM = Path(__file__).with_name("tmi_program.py")
STEP_S, PERIOD_S = 0.05, 2.2
"""A batch is full after 2 s."""
KILLS = ["step.end=kill@60", "sink.commit.begin=kill@2"]


def whole(here: Path) -> Path:
    """A directory with all positions."""
    (here / "in").mkdir(parents=True)
    prepare_tmi(here, None)
    return here


def run(here: Path, trigger: str) -> list[e.RunEvent]:
    made = APP.build(here, period=PERIOD_S, trigger=trigger, rows_per_step=250)
    pace, heard = Pace(STEP_S), list[e.RunEvent]()
    pace_sources(made, pace)
    run_paced(made, pace, f"file:{here / 'store'}", subscribers=[heard.append])
    APP.check(here, True)
    return heard


def stored(heard: list[e.RunEvent]) -> list[int]:
    """Bytes of each epoch but the last: that one comes when the input ends, whatever the timing."""
    return [event.bytes for event in heard if isinstance(event, e.EpochPublished)][:-1]


def test_epochs_at_minima_store_less_than_half_of_what_periodic_ones_do(tmp_path: Path) -> None:
    heard = run(whole(tmp_path / "aware"), "aware")
    aware, periodic = stored(heard), stored(run(whole(tmp_path / "periodic"), "periodic"))
    count = min(len(aware), len(periodic))
    assert count >= 14
    ratio = sum(aware[:count]) / sum(periodic[:count])
    known = sum(aware[3:count]) / sum(periodic[3:count])
    print(f"checkpoint bytes, aware over periodic: {ratio:.3f} in {count} epochs; {known:.3f} once profiled")
    assert ratio <= 0.4
    profiled = [event for event in heard if isinstance(event, e.TimingProfiled)]
    assert [event.dynamic for event in profiled] == [("modes",)] * len(profiled)
    assert profiled[0].s_min <= 0.1 * profiled[0].average, "as of figure 5: the least is almost nothing"
    sizes = [event.size for event in heard if isinstance(event, e.EpochDecided)][3:]
    print(f"size at an epoch over the average: {sum(sizes) / len(sizes) / profiled[0].average:.3f}")
    picture = tmp_path / "state.png"
    url = f"file:{tmp_path / 'aware' / 'store'}"
    assert run_command(["plot", url, "--state-size", "--out", str(picture)]) == 0
    assert picture.stat().st_size > 10_000


def live(here: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOLDFAST_FP": failpoint}
    command = [sys.executable, str(PROGRAM), str(here)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_with_kills_the_clusters_are_the_same(tmp_path: Path) -> None:
    here = place(tmp_path, APP)
    for failpoint in KILLS:
        died = live(here, failpoint)
        assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"
    assert open_store(f"file:{here / 'store'}").epochs(RegionName(APP.region)), "it goes on from an epoch"
    done = live(here)
    assert done.returncode == 0, done.stderr
    APP.check(here, True)
