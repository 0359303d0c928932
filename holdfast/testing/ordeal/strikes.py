"""What a planned fault does to a life, and whether it fired, in the middle, and was felt.

Victims are only ever processes of the life itself: its driver is our own child, the others carry its tag.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.testing import processes
from holdfast.testing.ordeal.process import LifeProcess
from holdfast.testing.ordeal.schedule import ACTIONS, Planned
from holdfast.testing.ordeal.taps import share_told

FIRE_S = 5.0
"""A failpoint that is not reached by then is not waited for."""
BUSY_S = 6.0
FELT_S = 5.0
RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class Struck:
    """One fault as it was."""

    number: int
    fault: str
    how: str
    at_s: float
    """Since the run under faults began."""
    share: float
    """Of the input, at that moment."""
    epoch: int
    """The newest one at that moment."""
    place: str
    """The failpoint where it struck; else the last one that the driver had reached."""
    fired: bool
    in_middle: bool
    effect: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Scene:
    """What is known of a run from outside, whatever happens to its processes: looks at its directory only."""

    def __init__(self, place: Path, has_regions: bool) -> None:
        self.place, self.has_regions = place, has_regions
        self.began_at = time.monotonic()

    @property
    def trail(self) -> Path:
        return self.place / "failpoints"

    def share(self) -> float:
        return share_told(self.place)

    def epoch(self) -> int:
        found = self.place.glob("store/epochs/*/*.manifest")
        numbers = [int(path.name[:12]) for path in found if path.name[:12].isdigit()]
        return max(numbers, default=0)

    def trail_bytes(self) -> int:
        return self.trail.stat().st_size if self.trail.exists() else 0

    def reached(self, driver: int | None = None) -> list[str]:
        """Failpoints that were reached, by this process if one is named."""
        if not self.trail.exists():
            return []
        words = (line.split() for line in self.trail.read_text().splitlines() if not line.startswith("!"))
        return [w[0] for w in words if len(w) == 2 and (driver is None or w[1] == str(driver))]

    def fired_since(self, since: int) -> bool:
        with self.trail.open("rb") as file:
            file.seek(since)
            return any(line.startswith(b"!") for line in file.read().splitlines())

    def last_reached(self) -> str:
        if not (size := self.trail_bytes()):
            return "-"
        with self.trail.open("rb") as file:
            file.seek(max(0, size - 400))
            lines = file.read().decode(errors="replace").splitlines()
        return lines[-1].lstrip("!").split()[0] if lines and lines[-1].split() else "-"

    def moved(self) -> tuple[float, int, int]:
        """Changes as long as the run does anything."""
        return self.share(), self.epoch(), self.trail_bytes()


def strike(scene: Scene, life: LifeProcess, each: Planned, failpoint: str | None) -> Struck:
    """Do it. `failpoint`: where, if it is to strike at one."""
    match each.fault:
        case "driver" if failpoint is None:
            return _kill(scene, life, each)
        case "worker":
            return _kill_child(
                scene, life, each, lambda: processes.busy(life.tag, "worker", BUSY_S), "worker"
            )
        case "executor":
            return _kill_child(scene, life, each, lambda: _first(life, "executor"), "executor")
        case "jvm":
            return _kill_child(scene, life, each, lambda: _first(life, "jvm"), "JVM")
        case "slow" if failpoint is None:
            return _stop_and_go(scene, life, each)
    return _at_failpoint(scene, life, each, failpoint)


class _Moment:
    """Where a run was when a fault struck."""

    def __init__(self, scene: Scene, each: Planned) -> None:
        self._scene, self._each = scene, each
        self._at_s = round(time.monotonic() - scene.began_at, 2)
        self._share, self._epoch, self._place = scene.share(), scene.epoch(), scene.last_reached()

    def told(self, how: str, fired: bool, effect: str, place: str | None = None, felt: bool = True) -> Struck:
        inside = 0.0 < self._share < 1.0 and (self._epoch > 0 or not self._scene.has_regions)
        return Struck(
            self._each.number, self._each.fault, how, self._at_s, round(self._share, 3), self._epoch,
            place or self._place, fired, fired and felt and inside, effect,
        )  # fmt: skip


def _kill(scene: Scene, life: LifeProcess, each: Planned, how: str = "SIGKILL") -> Struck:
    moment = _Moment(scene, each)
    life.signal(signal.SIGKILL)
    life.wait(10.0)
    return moment.told(how, True, RESTARTED)


def _kill_child(
    scene: Scene, life: LifeProcess, each: Planned, find: Callable[[], processes.Process | None], what: str
) -> Struck:
    victim, idle = find(), ""
    if victim is None and what == "worker":
        victim, idle = _first(life, "worker"), "idle "
    failed, moment = life.tasks_failed(), _Moment(scene, each)
    if victim is None or not processes.send(victim.pid, life.tag):
        return moment.told("SIGKILL", False, f"there was no {what}")
    deadline = time.monotonic() + FELT_S
    while time.monotonic() < deadline and life.poll() is None and life.tasks_failed() == failed:
        time.sleep(0.02)
    felt = life.poll() not in (None, 0) or life.tasks_failed() > failed or what == "JVM"
    effect = {"JVM": "noticed", "executor": "executor replaced"}.get(what, "task failed")
    return moment.told(f"SIGKILL to {idle}pid {victim.pid}", True, effect if felt else "not felt", felt=felt)


def _first(life: LifeProcess, kind: processes.Kind) -> processes.Process | None:
    return next(iter(processes.of_kind(life.tag, kind)), None)


def _stop_and_go(scene: Scene, life: LifeProcess, each: Planned) -> Struck:
    """Everything of the driver stands still for a while, or its JVM does."""
    moment, jvm = _Moment(scene, each), _first(life, "jvm")
    if jvm is not None and each.number % 2:
        processes.send(jvm.pid, life.tag, signal.SIGSTOP)
        time.sleep(each.seconds)
        processes.send(jvm.pid, life.tag, signal.SIGCONT)
        return moment.told(f"JVM stopped for {each.seconds:g} s", True, "waited")
    life.signal(signal.SIGSTOP)
    time.sleep(each.seconds)
    life.signal(signal.SIGCONT)
    return moment.told(f"driver stopped for {each.seconds:g} s", True, "waited")


def _at_failpoint(scene: Scene, life: LifeProcess, each: Planned, failpoint: str | None) -> Struck:
    action = ACTIONS[each.fault]
    how = {"kill": "SIGKILL", "eio": "I/O error", "enospc": "no space", "sleep": f"{each.seconds:g} s late"}[
        action
    ]
    if failpoint is None:
        return _Moment(scene, each).told(how, False, "the program reaches no such place")
    since = scene.trail_bytes()
    life.tell(arm=f"{failpoint}={action}" + (f":{each.seconds:g}" if action == "sleep" else ""))
    deadline = time.monotonic() + FIRE_S
    while not (fired := scene.fired_since(since)) and time.monotonic() < deadline and life.poll() is None:
        time.sleep(0.005)
    moment = _Moment(scene, each)
    if fired or life.poll() is not None:
        if each.fault == "driver":
            life.wait(10.0)
        effect = {"driver": RESTARTED, "slow": "waited"}.get(each.fault, "retried")
        return moment.told(how, True, effect, failpoint)
    life.tell(arm="")
    if each.fault == "driver":
        return _kill(scene, life, each)
    return moment.told(how, False, "not reached in time", failpoint)
