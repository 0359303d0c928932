"""Two drivers on one store: one owner, and output that is right whoever wins.

`make chaos` stops a driver at every failpoint in both modes and lets two start at once more often than `make test`, which
draws a mode for each failpoint."""

from __future__ import annotations

import os
import signal
import time

import campaign
import pytest
from campaign import Place
from faults import fired

pytestmark = pytest.mark.slow

OWNED, FENCED = 8, 9


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("attempt", range(5))
@pytest.mark.fault("D01", "O10")
def test_of_two_drivers_started_at_once_one_owns_the_store_and_the_other_is_refused(
    place: Place, attempt: int
) -> None:
    first, second = campaign.start(place), campaign.start(place)
    lives = [campaign.finish(place, process) for process in (first, second)]
    codes = sorted(life.exit for life in lives)
    # The loser may also come so late that the winner has ended: then it finds nothing left to do.
    assert codes in ([0, OWNED], [0, 0]), [life.report for life in lives]
    if OWNED in codes:
        refused = next(life for life in lives if life.exit == OWNED)
        assert refused.report["error"] == "OwnedError"
        assert str(place.store) in refused.report["message"]
    assert campaign.story(place).rows_replayed == 0
    campaign.check(place)


def test_a_second_driver_is_refused_while_the_first_one_runs(place: Place) -> None:
    first = campaign.start(place)
    wait_for_epoch(place, 1)
    second = campaign.live(place)
    assert second.exit == OWNED, second.report
    assert "take" in second.report["message"]
    assert campaign.finish(place, first).exit == 0
    campaign.check(place)


@pytest.mark.fault("D02", "O10")
def test_a_stopped_driver_is_fenced_when_it_continues_after_a_take_over(place: Place) -> None:
    old = campaign.start(place)
    wait_for_epoch(place, 2)
    os.kill(old.pid, signal.SIGSTOP)
    try:
        assert campaign.live(place).exit == OWNED  # stopped is not dead
        new = campaign.live(place, take_over=True)
        assert new.exit == 0, new.report
        campaign.check(place)
    finally:
        os.kill(old.pid, signal.SIGCONT)
    expect_fenced(place, old)


@pytest.mark.sampled(per=["where"])
@pytest.mark.parametrize("mode", ["async", "drain", "token"])
@pytest.mark.parametrize(
    "where",
    [
        "step.end",
        "ckpt.op.put",
        "ckpt.manifest.tmp_written",
        "ckpt.manifest.fsynced",
        "ckpt.manifest.renamed",
        "ckpt.epoch.published",
        "sink.write",
        "sink.prepare",
        "sink.commit.begin",
        "sink.commit.applied",
        "gc.select",
    ],
)
@pytest.mark.fault("D02", "S13")
def test_a_driver_stopped_in_the_middle_of_a_write_cannot_harm_its_successor(
    place: Place, where: str, mode: str
) -> None:
    old = campaign.start(place, fp=f"{where}=stop", mode=mode)
    wait_until_stopped(old.pid)
    try:
        assert [firing.name for firing in campaign.story(place).firings] == [where]
        new = campaign.live(place, take_over=True, mode=mode, schedule=False)
        assert new.exit == 0, new.report
        campaign.check(place)
    finally:
        os.kill(old.pid, signal.SIGCONT)
    expect_fenced(place, old)


def test_a_driver_replaced_in_the_middle_stops_while_its_successor_still_runs(place: Place) -> None:
    old = campaign.start(place, fp="sink.commit.begin=stop")
    wait_until_stopped(old.pid)
    before = campaign.newest_epoch(place.store)
    new = campaign.start(place, take_over=True)
    wait_for_epoch(place, before + 1)
    os.kill(old.pid, signal.SIGCONT)
    expect_fenced(place, old, complete=False)
    assert campaign.finish(place, new).exit == 0
    campaign.check(place)


def expect_fenced(place: Place, old: object, *, complete: bool = True) -> None:
    life = campaign.finish(place, old)
    assert life.exit == FENCED, life.report
    assert life.report["error"] == "FencedError"
    campaign.check(place, complete=complete)


def wait_for_epoch(place: Place, epoch: int) -> None:
    patience = time.monotonic() + 30
    while campaign.newest_epoch(place.store) < epoch:
        assert time.monotonic() < patience, f"epoch {epoch} did not come"
        time.sleep(0.002)


def wait_until_stopped(pid: int) -> None:
    patience = time.monotonic() + 30
    while state_of(pid) != "T":
        assert time.monotonic() < patience, "the driver did not reach the failpoint"
        time.sleep(0.005)
    fired("driver stopped and replaced")


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
