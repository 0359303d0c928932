"""A full disk pauses the region; the previous epoch stays intact; when space returns it goes on by itself."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import campaign
import forked
import pytest
from campaign import REGION, Place
from faults import fired
from small_disk import enter_namespace, mount_small, try_namespace

from holdfast.checkpoint import manifest as manifests
from holdfast.ids import Epoch, RegionName
from holdfast.runtime.telling.events import RunEvent
from holdfast.runtime.telling.feed import Feed
from holdfast.runtime.telling.stored_events import encode
from holdfast.sources import Beacon
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, submit_local

pytestmark = pytest.mark.slow

LOOSE_ROWS = 2000
PAUSED = "paused for space"


# --- a real file system without space, in a mount namespace of its own ------------------------------------------------


@pytest.fixture
def mounts_allowed(place: Place) -> None:
    report = place.root / "mounts"
    forked.finish(forked.start(try_namespace, report), 30)
    if report.read_text():
        pytest.skip(f"needs a private mount namespace with a small tmpfs: {report.read_text()}")


class Ballast:
    """Fills a file system and keeps it full until `drop`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ballast"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        with open(self._path, "ab", buffering=0) as file:
            while not self._stop.is_set():
                try:
                    file.write(bytes(4096))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    time.sleep(0.001)

    def drop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._path.unlink()


def note_events() -> list[list[Any]]:
    """Every event that the run tells from now on, [kind, data]: a full store cannot keep its own log."""
    told: list[list[Any]] = []
    announce = Feed.announce

    def note(feed: Feed, event: RunEvent) -> None:
        told.append(list(encode(event)))
        announce(feed, event)

    Feed.announce = note  # type: ignore[method-assign]
    return told


def driver_on_small_disk(place: Place, small: str, mode: str) -> None:
    """Body of a child: fill the disk in the middle of the run, see the pause, free it, see the end."""
    os.environ["HOLDFAST_FP_LOG"] = str(place.hits)
    report: dict[str, Any] = {}
    told = note_events()
    try:
        enter_namespace()
        mount_small(place.root / small)
        made = campaign.topology(place, mode=mode, pace=campaign.Pace(place, step_s=0.02))
        loose = made.source(Beacon(rows=LOOSE_ROWS, rate=LOOSE_ROWS / 2, rows_per_step=20), name="loose")
        loose.sink(MemorySink("loose"), name="loose_out")
        job = submit_local(made, f"file:{place.store}", until="available")
        wait(lambda: campaign.newest_epoch(place.store) >= 2, "two epochs")
        ballast = Ballast(place.root / small)
        region = lambda: job.status()["regions"][REGION]  # noqa: E731
        wait(lambda: "no space" in region()["reason"], "the pause")
        report["epoch"] = campaign.newest_epoch(place.store)
        time.sleep(1.2)
        report["epoch_later"] = campaign.newest_epoch(place.store)
        report["state"] = job.status()["state"]
        store = open_store(f"file:{place.store}")
        data = store.manifest(RegionName(REGION), Epoch(report["epoch_later"]))
        report["intact"] = manifests.decode(data, "").epoch == report["epoch_later"]
        campaign.check(place, complete=False)
        report["told_while_full"] = story_of_space(told)
        ballast.drop()
        report["ended"] = job.await_termination(timeout=60)
        report["resets"] = region()["resets"]
        report["reason_at_the_end"] = region()["reason"]
        report["told"] = story_of_space(told)
        report["logged"] = story_of_space([[e.kind, e.data] for e in campaign.events(place)])
        campaign.check(place)
        report["loose"] = len({row["id"] for row in MemorySink.rows("loose")})
        report["loose_repeated"] = len(MemorySink.rows("loose")) - report["loose"]
        report["lost"] = job.status()["elements"]["loose"]["lost_rows"]
        report["empty_files"] = [str(p) for p in (place.root / small).rglob("part-*") if not p.stat().st_size]
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"
    (place.root / "report").write_text(json.dumps(report))
    os._exit(0)


def story_of_space(told: Iterable[Sequence[Any]]) -> list[str]:
    """What these events say about space and epochs, in order."""
    kinds = ("region.paused", "region.space", "epoch.published")
    return [
        PAUSED if kind == "region.paused" and "no space" in data["reason"] else kind
        for kind, data in told
        if kind in kinds
    ]


def went_on_after_a_pause(story: list[str]) -> bool:
    """Does the story tell of a pause, of space behind the last one, and of an epoch behind that?"""
    if PAUSED not in story:
        return False
    behind = story[len(story) - story[::-1].index(PAUSED) :]
    return "region.space" in behind and "epoch.published" in behind[behind.index("region.space") :]


def wait(condition: Any, what: str) -> None:
    patience = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < patience, f"waited 30 s for {what}"
        time.sleep(0.005)


@pytest.mark.sampled(per=["small"])
@pytest.mark.parametrize("mode", ["async", "drain", "token"])
@pytest.mark.parametrize("small", ["store", "ledger"])
@pytest.mark.fault("S08", "O07")
def test_a_full_disk_pauses_the_region_until_space_returns(
    place: Place, small: str, mode: str, mounts_allowed: None
) -> None:
    forked.finish(forked.start(driver_on_small_disk, place, small, mode), 120)
    report = json.loads((place.root / "report").read_text())
    assert "error" not in report, report
    assert report["state"] == "running"  # not parked, not failed
    assert report["epoch_later"] - report["epoch"] <= 1  # at most the one that was being published
    assert report["intact"]
    assert report["ended"]
    assert report["resets"] <= 5
    assert report["reason_at_the_end"] == ""
    # The best-effort part beside the region waits too: a full disk is no reason to lose rows.
    assert (report["loose"], report["loose_repeated"], report["lost"]) == (LOOSE_ROWS, 0, 0)
    assert not report["empty_files"]
    assert PAUSED in report["told_while_full"], "no event says that the region paused for space"
    assert went_on_after_a_pause(report["told"]), report["told"]
    fired("disk full")
    # A store without space may lose what happened meanwhile from its own log, but nothing of what came after.
    assert "region.space" in report["logged"]
    assert small == "store" or went_on_after_a_pause(report["logged"]), report["logged"]


def test_a_story_of_a_pause_needs_space_and_an_epoch_behind_it() -> None:
    assert went_on_after_a_pause([PAUSED, "epoch.published", "region.space", "epoch.published"])
    assert not went_on_after_a_pause(["epoch.published", "region.space", "epoch.published"])
    assert not went_on_after_a_pause([PAUSED, "epoch.published", "region.space"])
    assert not went_on_after_a_pause([PAUSED, "region.space", "epoch.published", PAUSED])


# --- the same by failpoint, at places that a real disk hits rarely ----------------------------------------------------


@pytest.mark.sampled(per=["where"])
@pytest.mark.parametrize("mode", ["async", "drain", "token"])
@pytest.mark.parametrize(
    "where",
    [
        "ckpt.op.put",
        "ckpt.manifest.tmp_written",
        "sink.write",
        "sink.prepare",
        "sink.prepared",
        "sink.commit.begin",
        "reset.sink.rollback",
    ],
)
@pytest.mark.fault("S08")
def test_no_space_at_a_failpoint_pauses_the_region_and_it_goes_on(
    place: Place, where: str, mode: str
) -> None:
    fp = f"{where}=enospc" if not where.startswith("reset.") else f"step.end=raise;{where}=enospc"
    life = campaign.live(place, fp=fp, mode=mode)
    assert life.exit == 0, life.report
    assert where in [firing.name for firing in campaign.story(place).firings]
    fired("disk full")
    paused = campaign.events(place, "region.paused")
    assert paused, "no event says that the region paused"
    assert "no space" in paused[0].data["reason"]
    assert campaign.events(place, "region.space")
    campaign.check(place)


@pytest.mark.fault("S02", "S14", "O05")
def test_a_disk_that_fails_otherwise_ends_the_run_and_the_next_one_goes_on(place: Place) -> None:
    life = campaign.live(place, fp="ckpt.op.put=eio")
    assert life.exit == 6, life.report  # StoreError: after a failed write nothing is trusted
    campaign.check(place, complete=False)
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(place)
