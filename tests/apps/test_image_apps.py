"""Pictures that are kept until a bus comes or a car leaves: what is counted on them is the truth, also after kills.

State sizes are like those of document 002, figure 5. Time is that of the input: the machine's speed does not matter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from app_data import WITHOUT_DATA, App, place
from image_apps import BCP, IMAGE_APPS, MUNI, SIGNALGURU, prepare_bcp, prepare_signalguru
from paced import Pace, pace_sources, run_paced

from holdfast.ids import RegionName
from holdfast.runtime.telling import events as e
from holdfast.store.urls import open_store

pytestmark = pytest.mark.skipif(not MUNI.is_dir(), reason=WITHOUT_DATA)

PROGRAM = Path(__file__).with_name("image_program.py")
KILLS = ["step.end=kill@25", "sink.commit.begin=kill@2"]


def run_at_its_pace(app: App, here: Path, **options: Any) -> list[e.RunEvent]:
    """A step takes as long as the pictures in it: time of the input, a hundredth of it."""
    made = app.build(here, rows_per_step=20, **options)
    pace, heard = Pace(0.25), list[e.RunEvent]()
    pace_sources(made, pace)
    run_paced(made, pace, f"file:{here / 'store'}", subscribers=[heard.append])
    app.check(here, True)
    return heard


@pytest.mark.sampled(keep=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "period", "bound", "dynamic"),
    [(BCP, 8.0, 0.5, ("stop_",)), (SIGNALGURU, 12.0, 0.3, ("motion_",))],
    ids=IMAGE_APPS,
)
def test_the_state_grows_and_falls_as_in_the_document(
    app: App, period: float, bound: float, dynamic: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    if app is BCP:
        prepare_bcp(tmp_path, rounds=3)
    else:
        prepare_signalguru(tmp_path, cycles=12)
    heard = run_at_its_pace(app, tmp_path, period=period)
    profiled = [event for event in heard if isinstance(event, e.TimingProfiled)]
    assert profiled
    first = profiled[0]
    print(f"{app.name}: least over average {first.s_min / first.average:.3f}, {first.dynamic}")
    assert first.s_min <= bound * first.average
    assert first.dynamic
    assert all(name.startswith(dynamic) for name in first.dynamic)
    decided = [event for event in heard if isinstance(event, e.EpochDecided)][3:]
    sizes = sum(event.size for event in decided) / len(decided) / first.average
    print(f"{app.name}: size at an epoch over the average {sizes:.3f} in {len(decided)} epochs")
    assert sizes <= 0.5


def live(app: App, here: Path, mode: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOLDFAST_FP": failpoint}
    command = [sys.executable, str(PROGRAM), app.name, str(here), mode]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(("app", "mode"), [(BCP, "async"), (SIGNALGURU, "token")], ids=IMAGE_APPS)
def test_with_kills_the_truth_is_found_all_the_same(app: App, mode: str, tmp_path: Path) -> None:
    here = place(tmp_path, app)
    for failpoint in KILLS:
        died = live(app, here, mode, failpoint)
        assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"
    app.check(here, False)
    assert open_store(f"file:{here / 'store'}").epochs(RegionName(app.region)), "it goes on from an epoch"
    done = live(app, here, mode)
    assert done.returncode == 0, done.stderr
    app.check(here, True)


def test_elements_with_epochs_of_their_own_find_the_truth(tmp_path: Path) -> None:
    here = place(tmp_path, BCP)
    done = live(BCP, here, "independent")
    assert done.returncode == 0, done.stderr
    BCP.check(here, True)
