"""In async mode, batches sent between an element's token and its pin are stored with the epoch and sent again first."""

from __future__ import annotations

import campaign
from campaign import REGION, Place

from holdfast.checkpoint import manifest as manifests
from holdfast.ids import Epoch, RegionName
from holdfast.store.urls import open_store


def kept_rows(place: Place, epoch: int) -> int:
    store = open_store(f"file:{place.store}")
    manifest = manifests.decode(store.manifest(RegionName(REGION), Epoch(epoch)), "")
    parts = manifest.parts.values()
    return sum(b.rows for part in parts for batches in part.kept.values() for b in batches)


def test_kept_batches_are_stored_and_sent_again_after_a_crash(place: Place) -> None:
    """The element `doubled` sits between two others: it sends while its own token is out and its input's is not."""
    found = []
    for _ in range(12):
        life = campaign.live(place, fp="ckpt.epoch.published=kill", arm_after_row=0, mode="async")
        if life.exit == 0:
            break
        assert life.killed
        found.append(kept_rows(place, life.epoch))
    assert any(found), f"no epoch kept a batch: {found}"
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(
        place
    )  # the restored epochs lack these rows in every state: only sending them again is exact


def test_drain_mode_keeps_nothing(place: Place) -> None:
    life = campaign.live(place, fp="ckpt.epoch.published=kill@2", mode="drain")
    assert life.killed
    assert kept_rows(place, life.epoch) == 0
    assert campaign.live(place, mode="drain", schedule=False).exit == 0
    campaign.check(place)
