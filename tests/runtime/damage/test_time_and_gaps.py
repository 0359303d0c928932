"""Clocks that jump in the middle of a run, a restart a week later, and an epoch that is gone between two others: the rows are
those of a run without any of it."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from typing import Any

import campaign
import forked
import pytest
from campaign import Place
from faults import fired

from holdfast import failpoints
from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, RegionName
from holdfast.store.urls import open_store
from holdfast.testing.local import run_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DAY_S = 86400.0
JUMPS = {
    "a day ahead": lambda chance: DAY_S,
    "a day back": lambda chance: -DAY_S,
    "to and fro": lambda chance: chance.choice([-1.0, 0.0, 1.0, 3600.0, -DAY_S]),
}


def life(place: Place, jump: str, shift_s: float, fp: str) -> None:
    """Body of a child: the wall clock is `shift_s` off from the beginning, and jumps at each failpoint."""
    real, chance, off = time.time, random.Random(jump), [shift_s]
    time.time = lambda: real() + off[0]
    os.environ["HOLDFAST_FP_LOG"] = str(place.root / "hits")
    os.environ["TMPDIR"] = tempfile.tempdir = str(place.root)
    hits = [0]

    def at_each(line: str) -> None:
        hits[0] += 1
        if jump:
            off[0] = shift_s + JUMPS[jump](chance)

    failpoints._log = at_each
    report: dict[str, Any] = {}
    try:
        pace = campaign.Pace(place, fp=fp)
        run_local(campaign.topology(place, pace=pace), place.url)
        report["end"] = "well"
    except HoldfastError as error:
        report["end"] = str(error)
    (place.root / "report").write_text(json.dumps({**report, "hits": hits[0]}))
    os._exit(0)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("fp", ["", "step.end=raise@2", "sink.commit.begin=kill"])
@pytest.mark.fault("T01", "T02")
def test_a_clock_that_jumps_changes_no_row(place: Place, jump: str, fp: str) -> None:
    place.root.mkdir(exist_ok=True)
    code = forked.finish(forked.start(life, place, jump, 0.0, fp))
    assert code == (-signal.SIGKILL if "kill" in fp else 0), "the fault did not fire"
    assert "raise" not in fp or [e for e in campaign.events(place, "reset.begin") if e.data["consecutive"]]
    if code == 0:
        report = json.loads((place.root / "report").read_text())
        assert report["end"] == "well"
        assert report["hits"] > 50
        fired("clock jumped", report["hits"])
    campaign.check(place, complete=code == 0)
    assert campaign.live(place).exit == 0
    campaign.check(place)


@pytest.mark.parametrize("shift_s", [7 * DAY_S, -7 * DAY_S])
@pytest.mark.fault("T03", "D03")
def test_a_restart_a_week_later_goes_on_where_it_was(place: Place, shift_s: float) -> None:
    life_before = campaign.live(place, fp="sink.commit.begin=kill", arm_after_row=60)
    assert life_before.killed
    before = campaign.newest_epoch(place.store)
    assert forked.finish(forked.start(life, place, "", shift_s, "")) == 0
    assert json.loads((place.root / "report").read_text())["end"] == "well"
    assert campaign.newest_epoch(place.store) > before > 0
    campaign.check(place)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.fault("C09")
def test_an_epoch_that_is_gone_between_two_others_is_not_needed(place: Place, kind: str) -> None:
    """Every manifest names all that it needs: the one before it may go, as retention lets it go."""
    here = Place(place.input, place.root, kind)
    assert campaign.live(here, fp="sink.commit.begin=kill@3", arm_after_epoch=3).killed
    store = open_store(here.url)
    region = RegionName(campaign.REGION)
    epochs = sorted(store.epochs(region))
    assert len(epochs) >= 3
    store.acquire()
    store.delete_epoch(region, Epoch(epochs[-2]))
    store.release()
    store.close()
    assert campaign.live(here).exit == 0
    campaign.check(here)


@pytest.mark.fault("C09", "O06")
def test_a_newest_epoch_that_is_gone_though_sinks_have_shown_it_is_refused(place: Place) -> None:
    assert campaign.live(place, fp="step.begin=kill@20", arm_after_epoch=3).killed
    newest = campaign.newest_epoch(place.store)
    manifest = place.store / "epochs" / campaign.REGION / f"{newest:012d}.manifest"
    kept = manifest.read_bytes()
    manifest.unlink()
    visible = {
        path: path.read_bytes() for path in place.root.rglob("part-*") if ".holdfast" not in path.parts
    }
    life_after = campaign.live(place)
    if life_after.exit == 0:
        # Nothing of it was visible yet: its rows come once, with another epoch.
        campaign.check(place)
        return
    now = {path: path.read_bytes() for path in place.root.rglob("part-*") if ".holdfast" not in path.parts}
    assert now == visible
    assert (
        "ahead" in life_after.report["message"]
        or "newer" in life_after.report["message"]
        or str(newest) in life_after.report["message"]
    )
    manifest.write_bytes(kept)
    assert campaign.live(place).exit == 0
    campaign.check(place)
