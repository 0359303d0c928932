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
from small_disk import BreakingVolume, enter_namespace, try_breaking_volume, try_namespace

from holdfast.errors import HoldfastError
from holdfast.testing.local import run_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


Ends = Callable[[], None]


def mount_tmpfs(path: Path, *options: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(["mode=700", *options]), "tmpfs", str(path)]
    subprocess.run(command, check=True, capture_output=True)


def no_descriptors(place: Place) -> Ends:
    """Nobody may open anything more; what is open stays."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before)


def no_inodes(place: Place) -> Ends:
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


FAULTS = {each.__name__: each for each in (no_descriptors, no_inodes)}
"""They come and go."""
READ_ONLY = "read_only"
"""It stays until the run has ended."""
CASES = [(fault, kind) for fault in (*FAULTS, READ_ONLY) for kind in ("file", "sqlite")]


def disturbed(place: Place, fault: str, volume: BreakingVolume | None) -> dict[str, Any]:
    """A run, and what comes in the middle of it."""
    told: dict[str, Any] = {}

    def come_and_go() -> None:
        while campaign.newest_epoch(place.store) < 2:
            time.sleep(0.002)
        told["at"] = campaign.newest_epoch(place.store)
        if volume is not None:
            volume.breaks()
        else:
            give_back = FAULTS[fault](place)
            time.sleep(1.0)
            give_back()
        told["fired"] = True

    thread = threading.Thread(target=come_and_go, daemon=True)
    thread.start()
    try:
        run_local(campaign.topology(place, pace=campaign.Pace(place, step_s=0.02)), place.url)
        told["end"] = "well"
    except HoldfastError as error:
        told["end"], told["message"] = type(error).__name__, str(error)
    thread.join(20)
    return told


def life(place: Place, fault: str, report: Path) -> None:
    """Body of a child: a run with the fault, in a process of its own, so that nothing of it is in use afterwards; then others without."""
    told: dict[str, Any] = {}
    try:
        enter_namespace()
        image = report.with_name("image")
        volume = BreakingVolume(image, place.root) if fault == READ_ONLY else None
        if volume is None:
            mount_tmpfs(place.root, "nr_inodes=600", "size=64m")
        os.environ["TMPDIR"] = tempfile.tempdir = str(place.root)
        told = in_a_fork(lambda: disturbed(place, fault, volume), report.with_name("disturbed"))
        if volume is not None:
            volume.is_mended()
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


def in_a_fork(body: Callable[[], dict[str, Any]], report: Path) -> dict[str, Any]:
    """What `body` answers in a process of its own."""
    child = os.fork()
    if not child:
        try:
            answer = body()
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        report.write_text(json.dumps(answer))
        os._exit(0)
    os.waitpid(child, 0)
    answer = json.loads(report.read_text())
    assert "error" not in answer, answer
    return dict(answer)


@pytest.mark.parametrize(("fault", "kind"), CASES)
@pytest.mark.fault("S10", "S11", "K05", "O05", "O07")
def test_it_costs_no_row_whatever_is_used_up(
    place: Place, fault: str, kind: str, tell: Callable[..., None]
) -> None:
    report = place.root / "mounts"
    attempt = try_breaking_volume if fault == READ_ONLY else try_namespace
    forked.finish(forked.start(attempt, report), 30)
    if report.read_text():
        pytest.skip(f"needs a private mount namespace with what this fault takes: {report.read_text()}")
    here = Place(place.input, place.root / "volume", kind)
    forked.finish(forked.start(life, here, fault, place.root / "report"), 90)
    told = json.loads((place.root / "report").read_text())
    assert told.get("fired"), told
    fired(fault.replace("_", " "))
    assert told.get("done"), told
    assert told["epoch"] >= told["at"]
    if fault == READ_ONLY:
        assert told["end"] != "well", told
    tell("used up", f"{kind}, {fault}: {told['end']} {told.get('message', '')[:100]}")
