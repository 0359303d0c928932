"""No descriptors, no inodes, a volume that becomes read-only, each in the middle of a run: one sentence or a pause, whole epochs
visible, and the next run ends with the exact output."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import campaign
import forked
import pytest
from campaign import Place
from faults import fired
from small_disk import enter_namespace, try_namespace

from holdfast.errors import HoldfastError
from holdfast.testing.local import run_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def mount_tmpfs(path: Path, *options: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(["mode=700", *options]), "tmpfs", str(path)]
    subprocess.run(command, check=True, capture_output=True)


def no_descriptors(place: Place) -> Callable[[], None]:
    """Nobody may open anything more; what is open stays."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before)


def no_inodes(place: Place) -> Callable[[], None]:
    taken = place.root / "taken"
    taken.mkdir(exist_ok=True)
    number = 0
    stop = threading.Event()

    def take() -> None:
        nonlocal number
        while not stop.is_set():
            try:
                (taken / str(number)).touch()
                number += 1
            except OSError:
                time.sleep(0.001)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()

    def give_back() -> None:
        stop.set()
        thread.join()
        for path in taken.iterdir():
            path.unlink()

    return give_back


def read_only(place: Place) -> Callable[[], None]:
    """Refused while somebody has a file open for writing: so it is asked for until it is done."""

    def remount(how: str) -> bool:
        command = ["mount", "-o", f"remount,{how}", str(place.root)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    while not remount("ro"):
        pass
    try:
        (place.root / "tried").touch()
    except OSError:
        return lambda: print(remount("rw"))
    raise AssertionError("the volume can still be written")


FAULTS = {each.__name__: each for each in (no_descriptors, no_inodes, read_only)}


CASES = [
    (fault, kind)
    for fault in FAULTS
    for kind in ("file", "sqlite")
    if (fault, kind) != ("read_only", "sqlite")
]
"""SQLite holds its file open for writing as long as the run lasts, and so keeps the volume from becoming read-only."""


def life(place: Place, fault: str, report: Path) -> None:
    """Body of a child: the fault comes in the middle of the run, stays for a while, and goes."""
    told: dict[str, Any] = {}
    try:
        enter_namespace()
        mount_tmpfs(place.root, "nr_inodes=600", "size=64m")
        os.environ["TMPDIR"] = tempfile.tempdir = str(place.root)

        def come_and_go() -> None:
            while campaign.newest_epoch(place.store) < 2:
                time.sleep(0.002)
            told["at"] = campaign.newest_epoch(place.store)
            give_back = FAULTS[fault](place)
            time.sleep(1.0)
            give_back()
            told["fired"] = True

        thread = threading.Thread(target=come_and_go, daemon=True)
        thread.start()
        pace = campaign.Pace(place, step_s=0.02)
        try:
            run_local(campaign.topology(place, pace=pace), place.url)
            told["end"] = "well"
        except HoldfastError as error:
            told["end"], told["message"] = type(error).__name__, str(error)
        thread.join(20)
        campaign.check(place, complete=False)
        told["epoch"] = campaign.newest_epoch(place.store)
        for _ in range(3):
            try:
                told["again"] = str(run_local(campaign.topology(place), place.url)["state"])
                break
            except HoldfastError as error:
                told["again"] = str(error)
        campaign.check(place)
        told["done"] = True
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
    report.write_text(json.dumps(told))
    os._exit(0)


# A volume becomes read-only only in a moment in which nobody has a file open for writing, which a short run may not have.
UNSTEADY = {("read_only", "file")}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [pytest.param(*case, marks=[pytest.mark.chaos] if case in UNSTEADY else []) for case in CASES],
)
@pytest.mark.fault("S10", "S11", "K05", "O05", "O07")
def test_it_costs_no_row_whatever_is_used_up(
    place: Place, fault: str, kind: str, tell: Callable[..., None]
) -> None:
    report = place.root / "mounts"
    forked.finish(forked.start(try_namespace, report), 30)
    if report.read_text():
        pytest.skip(f"needs a private mount namespace: {report.read_text()}")
    here = Place(place.input, place.root / "volume", kind)
    forked.finish(forked.start(life, here, fault, place.root / "report"), 90)
    told = json.loads((place.root / "report").read_text())
    assert told.get("fired"), told
    fired(fault.replace("_", " "))
    assert told.get("done"), told
    assert told["epoch"] >= told["at"]
    tell("used up", f"{kind}, {fault}: {told['end']} {told.get('message', '')[:100]}")
