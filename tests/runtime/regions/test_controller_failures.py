"""What goes wrong in a region's own thread, before the store is asked, costs an attempt and not the run."""

from __future__ import annotations

import campaign
import pytest
from campaign import Place

pytestmark = pytest.mark.slow

WHERE = "drain.all_acked"
PARKED, STORE = 12, 6


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_an_exception_once_all_elements_have_answered_resets_the_region_in_place(
    place: Place, mode: str
) -> None:
    life = campaign.live(place, fp=f"{WHERE}=raise", mode=mode)
    assert life.exit == 0, life.report
    assert [firing.name for firing in campaign.story(place).firings] == [WHERE]
    (aborted,) = campaign.events(place, "epoch.aborted")
    in_place = [event.data for event in campaign.events(place, "reset.begin") if event.data["consecutive"]]
    assert [reset["consecutive"] for reset in in_place] == [1]
    assert WHERE in in_place[0]["reason"]
    assert in_place[0]["epoch"] < aborted.data["epoch"]
    published = [event.data["epoch"] for event in campaign.events(place, "epoch.published")]
    assert aborted.data["epoch"] not in published
    assert published[-1] > aborted.data["epoch"], "no epoch after the reset"
    campaign.check(place)


@pytest.mark.fault("B05")
def test_an_exception_that_comes_back_each_time_parks_the_region_and_a_new_run_goes_on(place: Place) -> None:
    life = campaign.live(place, fp=f"{WHERE}=raise@1+", max_resets=2)
    assert life.exit == PARKED, life.report
    assert WHERE in life.report["message"]
    assert len(campaign.story(place).firings) == 3, "the first one and one after each of two resets"
    campaign.check(place, complete=False)
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(place)


@pytest.mark.fault("S08")
def test_no_space_once_all_elements_have_answered_pauses_the_region_without_using_up_a_reset(
    place: Place,
) -> None:
    life = campaign.live(place, fp=f"{WHERE}=enospc", max_resets=1)
    assert life.exit == 0, life.report
    assert [firing.name for firing in campaign.story(place).firings] == [WHERE]
    assert len(campaign.events(place, "region.paused")) == len(campaign.events(place, "region.space")) == 1
    assert [event.data["consecutive"] for event in campaign.events(place, "reset.begin")] == [0, 0]
    campaign.check(place)


def test_a_store_that_fails_a_moment_later_ends_the_run_for_nothing_it_says_is_trusted(place: Place) -> None:
    life = campaign.live(place, fp="ckpt.manifest.tmp_written=eio")
    assert life.exit == STORE, life.report
    campaign.check(place, complete=False)
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(place)
