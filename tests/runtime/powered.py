"""Power cuts for whole runs: store and output lie on a file system of their own, in an image file that is copied while the
process stands still. What was not made durable is in the page cache only, and so not in the copy: mounted, it is the disk that
a machine finds after its power was cut at that moment.

All happens in mount namespaces of child processes, so nobody else sees these mounts, and they end with the processes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign
from campaign import Place
from small_disk import enter_namespace

from holdfast import failpoints
from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing.local import run_local

SIZE = "24M"
HUNG_S = 120.0


@dataclass(frozen=True)
class Cut:
    """A copy of the disk, and what had been acknowledged when it was made."""

    image: Path
    at: str
    epoch: int


def make_image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(int(SIZE[:-1]) << 20)
    command = ["mkfs.ext4", "-q", "-F", "-O", "^metadata_csum_seed", "-m", "0", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def mount(image: Path, where: Path) -> None:
    """Nothing reaches the image by itself for a long time: neither the journal nor dirty pages."""
    where.mkdir(parents=True, exist_ok=True)
    options = "loop,commit=600,data=ordered,noatime"
    subprocess.run(["mount", "-o", options, str(image), str(where)], check=True, capture_output=True)


def try_mount(image: Path, where: Path) -> None:
    """Body of a child: ends with 0 where images can be mounted."""
    enter_namespace()
    mount(make_image(image), where)
    os._exit(0)


class Watch:
    """Within the driver: stands still at the chosen hits of failpoints, after telling where."""

    def __init__(self, place: Place, wanted: set[str], told: Path) -> None:
        self._place = place
        self._wanted = wanted
        self._told = told
        self._hits: Counter[str] = Counter()
        self._acknowledged = 0

    def __call__(self, line: str) -> None:
        name = line.split()[0]
        if name == "ckpt.epoch.published":
            self._acknowledged = campaign.newest_epoch(self._place.store)
        self._hits[name] += 1
        if f"{name}@{self._hits[name]}" in self._wanted:
            self._told.write_text(json.dumps([f"{name}@{self._hits[name]}", self._acknowledged]))
            os.kill(os.getpid(), signal.SIGSTOP)


def life(place: Place, image: Path, mode: str, prepare: Callable[[], None], report: Path) -> None:
    """Body of a child: mount, run to the end, compare with the oracle."""
    told: dict[str, Any] = {}
    try:
        enter_namespace()
        mount(image, place.root)
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
    image, told = make_image(outside / "disk"), outside / "told"

    def prepare() -> None:
        plant()
        failpoints._log = Watch(place, wanted, told)

    pid = fork(lambda: life(place, image, mode, prepare, outside / "report"))
    found: list[Cut] = []
    deadline = time.monotonic() + HUNG_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if not done:
            time.sleep(0.001)
        elif os.WIFSTOPPED(status):
            at, epoch = json.loads(told.read_text())
            copy = outside / f"cut-{len(found)}"
            shutil.copyfile(image, copy)
            found.append(Cut(copy, at, epoch))
            os.kill(pid, signal.SIGCONT)
        else:
            return found, json.loads((outside / "report").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the run did not come to an end")


def recovered(place: Place, cut: Cut, mode: str, outside: Path) -> dict[str, Any]:
    """What a run finds on the disk after the cut, and how it ends."""
    report = outside / f"after-{cut.image.name}"
    pid = fork(lambda: life(replace(place), cut.image, mode, lambda: None, report))
    deadline = time.monotonic() + HUNG_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"error": "hung"}
        time.sleep(0.002)
    return dict(json.loads(report.read_text()))


def verdict(cut: Cut, told: dict[str, Any]) -> str:
    """'' if the run after the cut kept what was acknowledged and ended with the exact output."""
    if "error" in told:
        return f"after a cut at {cut.at}: {told['error']}"
    if told["epoch"] < cut.epoch:
        return f"after a cut at {cut.at}: epoch {cut.epoch} was acknowledged, epoch {told['epoch']} is there"
    return ""


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(98)
    return pid
