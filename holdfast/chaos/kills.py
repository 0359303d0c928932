"""Real kills of real processes, each with its story: kind, epoch, failpoint, rows replayed, resets, seconds.

    with Run(directory, Size(), seed) as run:
        driver = run.start()
        if run.await_moment(driver, chance):
            run.strike(driver, "driver")        # SIGKILL
        run.to_the_end()                        # more lives until one ends well; then the oracle
    print(table(run.kills))

A kill before the first epoch, or after the last row was taken, tells nothing and does not count; so does one that
nobody felt (an idle worker is replaced by Spark silently). Whoever wants a number of kills draws again until
`run.counted` says so. Every wait has a limit: a hang is a failure.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from holdfast.chaos.campaign import Place, Size, check
from holdfast.errors import HoldfastError
from holdfast.store.base import Event
from holdfast.store.urls import open_store
from holdfast.testing import processes
from holdfast.testing.processes import Process

Kind = Literal["driver", "jvm", "executor", "daemon", "worker", "failpoint"]

STILL_S = 400.0
"""A driver that publishes no epoch for so long hangs, however slow the machine is."""
BUSY_S = 20.0
"""How long to look for a busy victim."""
FELT_S = 5.0
"""A kill that nobody felt by then is drawn again."""
ORPHAN_S = 20.0
TASK_FAILED = (b"Exception in task", b"Lost executor")
"""What Spark logs when a task fails, also if it is tried again. Not "Lost task": it says so of cancelled ones too."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. `trail` is the trail's length at that moment; the rest is known when the run is over."""

    kind: Kind
    epoch: int
    failpoint: str
    row: int
    """The last row taken before."""
    at: float
    trail: int
    counts: bool
    replayed: int = 0
    resets: int = 0
    """Resets in place until the next kill."""
    seconds: float | None = None
    """Until the next epoch was published."""


class Hung(AssertionError):
    """Something took longer than it ever should."""


class Driver:
    """One life: a driver process with all that it starts, found by a tag of its own; what they print goes to `log`."""

    def __init__(
        self, place: Place, size: Size, master: str, failpoints: str, number: int, scratch: Path
    ) -> None:
        self.tag = processes.new_tag("campaign")
        self.log = place.root / f"driver-{number}.log"
        self.first_epoch = place.epoch()
        self._place = place
        self._moved = (self.first_epoch, time.monotonic())
        """The newest epoch that was seen, and when it was seen first."""
        scratches = ("TMPDIR", "SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR", "SPARK_WORKER_DIR")
        environment = {
            **os.environ,
            **dict.fromkeys(scratches, str(scratch)),
            processes.TAG: self.tag,
            "HOLDFAST_FP": failpoints,
            "HOLDFAST_FP_LOG": str(place.trail),
        }
        command = [sys.executable, "-m", "holdfast.chaos.campaign_driver", str(place.root), master]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, json.dumps(asdict(size))],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=place.root, env=environment, start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def until(self, condition: Callable[[], bool], within_s: float = math.inf) -> bool:
        """Wait for the condition; False if the driver ended or the time is over. Raises if the driver hangs."""
        deadline = time.monotonic() + within_s
        while not condition():
            if not self.alive or time.monotonic() > deadline:
                return False
            self._look_for_a_hang()
            time.sleep(0.01)
        return True

    def _look_for_a_hang(self) -> None:
        now = time.monotonic()
        if now < self._moved[1] + STILL_S:
            return
        if (epoch := self._place.epoch()) == self._moved[0]:
            raise Hung(
                f"the driver published no epoch for {STILL_S:g} s\n{self._stacks()}\n{self.last_words()}"
            )
        self._moved = (epoch, now)

    def wait(self) -> int:
        """Its exit code."""
        self.until(lambda: False)
        return self.process.wait()

    def kill(self) -> None:
        """SIGKILL to the driver's Python alone: its JVM must notice by itself."""
        self.process.kill()
        self.process.wait()

    def tasks_failed(self) -> int:
        log = self.log.read_bytes()
        return sum(log.count(words) for words in TASK_FAILED)

    def last_words(self, lines: int = 12) -> str:
        return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def report(self) -> dict[str, object]:
        path = self._place.root / f"report-{self.process.pid}.json"
        found: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _stacks(self) -> str:
        spy = Path(sys.executable).with_name("py-spy")
        if not spy.exists():
            return ""
        command = [str(spy), "dump", "--pid", str(self.process.pid)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout


class Run:
    """A topology over its input, run in as many lives as it takes. Leaves no process behind."""

    def __init__(self, root: Path, size: Size, seed: int, master: str = "local[2,4]") -> None:
        self.place = Place(root)
        self.size = size
        self.master = master
        self.kills: list[Kill] = []
        self.drivers: list[Driver] = []
        # Not below `root`: sockets need short paths.
        self._scratch = Path(tempfile.mkdtemp(prefix="hf-"))
        self.place.write_input(size, seed)
        self.place.trail.touch()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self.drivers:
            processes.kill_all(driver.tag)
            driver.process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- lives --------------------------------------------------------------------------------------------------

    def start(self, failpoints: str = "") -> Driver:
        driver = Driver(self.place, self.size, self.master, failpoints, len(self.drivers), self._scratch)
        self.drivers.append(driver)
        return driver

    def to_the_end(self, lives: int = 4) -> None:
        """Undisturbed lives until one ends well (a parked region goes on in the next); then the oracle looks."""
        for _ in range(lives):
            driver = self.drivers[-1] if self.drivers and self.drivers[-1].alive else self.start()
            code = driver.wait()
            if code == 0:
                self.check()
                return
            if driver.report().get("error") != "RegionParkedError":
                raise AssertionError(
                    f"a driver ended with code {code}: {driver.report()}\n{driver.last_words()}"
                )
        raise AssertionError(f"parked {lives} times: {self.drivers[-1].report()}")

    def check(self) -> None:
        """The output is exact, every kill has its figures, and nothing of the run is left."""
        check(self.place)
        self.kills = told(self.kills, self.place, self.events())
        for driver in self.drivers:
            left = processes.left_after(driver.tag, ORPHAN_S)
            if left:
                raise AssertionError(f"left behind: {left}")

    def await_moment(self, driver: Driver, chance: random.Random, within_s: float = 2.0) -> bool:
        """Wait for a new epoch of this life and since the last kill, then some random time more.

        False: the driver ended by itself.
        """
        newest = max([driver.first_epoch, *(kill.epoch for kill in self.kills)])
        if not driver.until(lambda: self.place.epoch() > newest):
            return False
        driver.until(lambda: False, chance.uniform(0.0, within_s))
        return driver.alive

    # --- kills --------------------------------------------------------------------------------------------------

    def strike(self, driver: Driver, kind: Kind, *, idle: bool = False) -> bool:
        """SIGKILL to a process of this kind (a busy one, unless `idle`); True if the kill counts."""
        if kind == "driver":
            kill = self._note(kind)
            driver.kill()
            # What it did between the note and its end belongs to the time before the kill.
            return self._keep(replace(kill, trail=self.place.trail.stat().st_size, epoch=self.place.epoch()))
        victim = self._victim(driver, kind, idle)
        resets, failed = self.resets(), driver.tasks_failed()
        kill = self._note(kind)
        if victim is None or not processes.send(victim.pid, driver.tag):
            return False
        felt = driver.until(lambda: self.resets() > resets or driver.tasks_failed() > failed, FELT_S)
        # A driver that ended well in the meantime did not feel it either.
        felt = felt or driver.process.poll() not in (None, 0)
        return self._keep(kill if felt else replace(kill, counts=False))

    def note_failpoint(self, driver: Driver, before: int) -> bool:
        """After a life that a failpoint should have ended: True if it did and counts. `before`: the trail's length then."""
        tail = self.place.trail.read_bytes()[before:].decode()
        fired = [line.split()[0][1:] for line in tail.splitlines() if line.startswith("!")]
        if not fired:
            return False
        return self._keep(self._note("failpoint", fired[-1]))

    @property
    def counted(self) -> int:
        return sum(kill.counts for kill in self.kills)

    def _victim(self, driver: Driver, kind: Kind, idle: bool) -> Process | None:
        if kind == "executor":
            return _holder_of_newest_segment(driver.tag)
        wanted: processes.Kind = "worker" if kind == "worker" else "daemon" if kind == "daemon" else "jvm"
        if not idle and kind == "worker":
            return processes.busy(driver.tag, wanted, BUSY_S)
        return next(iter(processes.of_kind(driver.tag, wanted)), None)

    def _note(self, kind: Kind, failpoint: str = "") -> Kill:
        trail = self.place.trail.read_bytes()
        row = max((last for _, last in _steps(trail)), default=-1)
        epoch = self.place.epoch()
        counts = epoch >= 1 and row < self.size.rows - 1
        return Kill(kind, epoch, failpoint, row, time.time(), len(trail), counts)

    def _keep(self, kill: Kill) -> bool:
        self.kills.append(kill)
        return kill.counts

    def events(self) -> list[Event]:
        try:
            return open_store(f"file:{self.place.store}").events()
        except HoldfastError:
            return []  # the first driver is about to make the store

    def resets(self) -> int:
        """Resets in place so far, over all lives."""
        return sum(map(_in_place, self.events()))


def _holder_of_newest_segment(tag: str) -> Process | None:
    """The executor that has live state; another one could die unnoticed. Its daemon knows its directory."""
    executors = {process.pid: process for process in processes.of_kind(tag, "executor")}
    written: dict[int, float] = {}
    for daemon in processes.of_kind(tag, "daemon"):
        directory = processes.environment(daemon.pid).get("SPARK_LOCAL_DIRS", "").split(",")[0]
        times = [path.stat().st_mtime for path in Path(directory).glob("holdfast-live-*/state/*.arrow")]
        if daemon.parent in executors and times:
            written[daemon.parent] = max(times)
    return executors[max(written, key=lambda pid: written[pid])] if written else None


def _in_place(event: Event) -> bool:
    return event.kind == "reset.begin" and int(event.data["consecutive"]) > 0


def told(kills: Sequence[Kill], place: Place, events: Sequence[Event]) -> list[Kill]:
    """The kills with what followed each of them, read from the trail and the event log."""
    trail = place.trail.read_bytes()
    complete = []
    for kill, following in zip(kills, [*kills[1:], None], strict=True):
        end = len(trail) if following is None else following.trail
        until = float("inf") if following is None else following.at
        published = [e.wall for e in events if e.kind == "epoch.published" and e.wall > kill.at]
        complete.append(
            replace(
                kill,
                replayed=_replayed(trail[:end], kill.trail),
                resets=sum(_in_place(e) for e in events if kill.at <= e.wall < until),
                seconds=round(published[0] - kill.at, 1) if published else None,
            )
        )
    return complete


def _replayed(trail: bytes, since: int) -> int:
    """Rows taken again behind `since` that had been taken before."""
    again, highest = 0, max((last for _, last in _steps(trail[:since])), default=-1)
    for first, last in _steps(trail[since:]):
        again += max(0, min(last, highest) - first + 1)
        highest = max(highest, last)
    return again


def _steps(trail: bytes) -> list[tuple[int, int]]:
    """First and last row of every step in the trail."""
    words = (line.split() for line in trail.decode().splitlines() if line.startswith("#"))
    return [(int(word[2]), int(word[3])) for word in words]


HEADER = (
    f"{'kind':10} {'epoch':>5} {'failpoint':24} {'at row':>6} {'replayed':>8} {'resets':>6} {'seconds':>7}"
)


def table(kills: Sequence[Kill]) -> list[str]:
    """One line per kill, under `HEADER`."""
    return [
        f"{kill.kind:10} {kill.epoch:5} {kill.failpoint or '-':24} {kill.row:6} {kill.replayed:8} {kill.resets:6} "
        f"{'-' if kill.seconds is None else kill.seconds:>7}" + ("" if kill.counts else "  (does not count)")
        for kill in kills
    ]
