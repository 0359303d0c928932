"""Power cuts for whole runs: store and output lie on the file system that power.py forgets."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign
import power
from campaign import Place
from small_disk import enter_namespace

from holdfast import failpoints
from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing.local import run_local


@dataclass(frozen=True)
class Cut:
    """A copy of the disk, and what had been acknowledged when it was made."""

    image: Path
    at: str
    epoch: int


class Acknowledged:
    """The newest epoch that was acknowledged, as failpoints are hit."""

    def __init__(self, place: Place) -> None:
        self._place, self._epoch = place, 0

    def __call__(self, name: str) -> int:
        if name == "ckpt.epoch.published":
            self._epoch = campaign.newest_epoch(self._place.store)
        return self._epoch


def life(place: Place, image: Path, mode: str, prepare: Callable[[], None], report: Path) -> None:
    """Body of a child: mount, run to the end, compare with the oracle."""
    told: dict[str, Any] = {}
    try:
        enter_namespace()
        power.mount(image, place.root)
        told["epoch"] = newest_epoch(place)
        os.environ["HOLDFAST_FP_LOG"] = str(report.with_suffix(".hits"))
        os.environ["TMPDIR"] = tempfile.tempdir = str(report.parent)
        campaign.check(place, complete=False)
        prepare()
        run_local(campaign.topology(place, mode=mode), place.url)
        campaign.check(place)
        told["done"] = True
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
    report.write_text(json.dumps(told))
    os._exit(0)


def newest_epoch(place: Place) -> int:
    """By way of the store itself: it finishes what was under way in a database when the power went."""
    store = open_store(place.url)
    try:
        return (
            max(map(int, store.epochs(RegionName(campaign.REGION))), default=0) if place.store.exists() else 0
        )
    finally:
        store.close()


def pictures(
    place: Place, outside: Path, mode: str, wanted: set[str], plant: Callable[[], None] = lambda: None
) -> tuple[list[Cut], dict[str, Any]]:
    """One run with the power cut at each of these hits; also what the run itself told. It goes on behind each picture."""
    image, told = power.make_image(outside / "disk"), outside / "told"

    def prepare() -> None:
        plant()
        failpoints._log = power.Watch(wanted, told, Acknowledged(place))

    found = power.pictures(
        lambda: life(place, image, mode, prepare, outside / "report"), image, told, outside
    )
    return [Cut(*each) for each in found], json.loads((outside / "report").read_text())


def recovered(place: Place, cut: Cut, mode: str, outside: Path) -> dict[str, Any]:
    """What a run finds on the disk after the cut, and how it ends."""
    report = outside / f"after-{cut.image.name}"
    if not power.came_to_its_end(lambda: life(replace(place), cut.image, mode, lambda: None, report)):
        return {"error": "hung"}
    return dict(json.loads(report.read_text()))


def verdict(cut: Cut, told: dict[str, Any]) -> str:
    """'' if the run after the cut kept what was acknowledged and ended with the exact output."""
    if "error" in told:
        return f"after a cut at {cut.at}: {told['error']}"
    if told["epoch"] < cut.epoch:
        return f"after a cut at {cut.at}: epoch {cut.epoch} was acknowledged, epoch {told['epoch']} is there"
    return ""
