"""Power is cut at failpoints of a whole run, on a real file system that forgets what was not synced: what was acknowledged is
there, and the next run ends with the exact output. And with syncing left out, or done too late, it does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import power
import powered
import pytest
from campaign import Place
from faults import fired
from sampling import Extent
from test_every_failpoint import NEVER, ORDINARY

from holdfast import durable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FIRST = 3
POINTS = [f"{name}@{hit}" for name in ORDINARY if name not in NEVER for hit in (FIRST, FIRST + 2, FIRST + 9)]


@pytest.fixture
def images(place: Place) -> None:
    power.skip_without_images(place.root)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.fault("S01", "S06", "K03", "O05")
def test_whatever_was_acknowledged_is_there_after_a_power_cut(
    place: Place, kind: str, extent: Extent, tell: Callable[..., None]
) -> None:
    on_disk = Place(place.input, place.root / "disk-here", kind)
    wanted = set(extent.of(POINTS, keep=9))
    cuts, told = powered.pictures(on_disk, place.root, "async", wanted)
    assert told.get("done"), told
    assert len(cuts) >= min(3, len(wanted)), f"only {[cut.at for cut in cuts]} of {wanted} were reached"
    for cut in extent.of(cuts, keep=2):
        assert powered.verdict(cut, powered.recovered(on_disk, cut, "async", place.root)) == ""
        fired("power cut")
        tell("power cuts", f"{kind}: at {cut.at}, epoch {cut.epoch} acknowledged")


def sync_no_file() -> None:
    durable.fsync_file = lambda path: None
    real = os.fsync

    def fsync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").resolve().is_dir():
            real(fd)

    os.fsync = fsync
    os.fdatasync = lambda fd: None


def sync_no_directory() -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if not Path(f"/proc/self/fd/{fd}").resolve().is_dir():
            real(fd)

    os.fsync = fsync


def sync_nothing() -> None:
    os.fsync = os.fdatasync = lambda fd: None


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("defect", [sync_no_file, sync_no_directory, sync_nothing])
@pytest.mark.fault("PD01", "PD02", "S03")
@pytest.mark.planted
def test_without_syncing_a_power_cut_is_noticed(
    place: Place, defect: Callable[[], None], tell: Callable[..., None]
) -> None:
    """Files whose names were synced and whose bytes were not, and the other way round."""
    on_disk = Place(place.input, place.root / "disk-here")
    wanted = {f"ckpt.epoch.published@{hit}" for hit in (2, 4, 6)} | {"sink.commit.recorded@6", "gc.delete@2"}
    cuts, told = powered.pictures(on_disk, place.root, "async", wanted, plant=defect)
    assert told.get("done"), told
    for cut in cuts:
        if found := powered.verdict(cut, powered.recovered(on_disk, cut, "async", place.root)):
            tell("planted defects", f"{defect.__name__}: {found.splitlines()[0][:120]}")
            return
    raise AssertionError(f"no cut at {[cut.at for cut in cuts]} shows that nothing was synced")
