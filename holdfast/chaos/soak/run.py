"""The soak itself: begin lives, strike, look, and at the end stop in order and judge. Bounded, and leaves no process behind."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from holdfast.chaos.soak.app import Places
from holdfast.chaos.soak.report import page
from holdfast.chaos.soak.verdict import Judged, judge
from holdfast.chaos.soak.watch import Sample, sampled
from holdfast.errors import HoldfastError
from holdfast.store.urls import open_store
from holdfast.testing import processes
from holdfast.testing.ordeal.process import Spawned
from holdfast.testing.ordeal.schedule import Fault, Planned, planned, resolved
from holdfast.testing.ordeal.strikes import Scene, Struck, strike

FAULTS: tuple[Fault, ...] = ("driver", "worker", "jvm", "store", "disk", "slow")
LOOK_S = 5.0
PATIENCE_S = 300.0
"""A run that publishes nothing for so long hangs."""
STOP_S = 300.0
DISK_LEFT = 2 << 30
"""A soak ends early rather than fill the disk."""


class Soak:
    """One soak in a directory of its own."""

    def __init__(
        self, root: Path, seconds: float, seed: int, rate: int, gap_s: float, tell: Callable[[str], None]
    ) -> None:
        self._places, self._seconds, self._rate, self._gap_s = Places(root), seconds, rate, gap_s
        self.seed, self._tell = seed, tell
        self._chance = Random(f"soak {seed}")
        self._scratch = Path(tempfile.mkdtemp(prefix="hf-"))
        self._scene = Scene(root, True)
        self.struck: list[Struck] = []
        self.lives: list[str] = []
        self.samples: list[Sample] = []
        self.judged: list[Judged] = []
        self.failure = ""
        self.is_short = False
        """It was interrupted: what there is then is judged."""
        self._moved = (0, time.monotonic())
        self._looked = 0.0
        self._struck_before = 0

    def run(self) -> bool:
        """Whether every promise was kept."""
        self._begin()
        try:
            try:
                self._strike_until(time.monotonic() + self._seconds)
            except KeyboardInterrupt:
                self.is_short = True
                self._tell(
                    "asked to end: no more faults, the run is stopped and judged; once more ends it at once"
                )
            self._stop()
        finally:
            self._life.end_at_once()
            shutil.rmtree(self._scratch, ignore_errors=True)
        return not self.failure and bool(self.judged) and all(each.is_kept for each in self.judged)

    def told(self) -> str:
        seconds = time.monotonic() - self._scene.began_at
        return page(
            seconds,
            self.seed,
            self._rate,
            self.struck,
            self.lives,
            self.samples,
            self.judged,
            self.failure,
            self.is_short,
        )

    # --- lives ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        scratches = ("TMPDIR", "SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR")
        environment = {
            **dict.fromkeys(scratches, str(self._scratch)),
            "HOLDFAST_FP": "",
            "HOLDFAST_FP_LOG": str(self._scene.trail),
        }
        root, log = self._places.root, self._places.root / f"life-{len(self.lives):05}.log"
        command = [sys.executable, "-m", "holdfast.chaos.soak.driver", str(root), str(self._rate)]
        if self._scene.trail_bytes() > 8 << 20:
            self._scene.trail.unlink()
        self._struck_before = len(self.struck)
        self._life = Spawned(command, processes.new_tag("soak"), log, environment, root)

    def _look(self) -> bool:
        """Note what there is; begin another life if this one is over. False: it hangs."""
        now, epoch = time.monotonic(), self._scene.epoch()
        if epoch != self._moved[0]:
            self._moved = (epoch, now)
        if now - self._moved[1] > PATIENCE_S:
            self.failure = f"No epoch was published for {PATIENCE_S:.0f} s, at {self._scene.last_reached()}."
            return False
        if (code := self._life.poll()) is not None:
            words = self._life.last_words(2)
            self._over(code)
            if len(self.struck) == self._struck_before:
                self.failure = f"A life to which nothing was done ended with code {code}: {words}"
                return False
            self._begin()
        if now - self._looked > LOOK_S:
            self._looked = now = time.monotonic()
            began = self._scene.began_at
            self.samples.append(
                sampled(self._places, self._life.tag, self._life.pid, now - began, len(self.lives), now - self._life.began_at, epoch)
            )  # fmt: skip
        return True

    def _over(self, code: int) -> None:
        left = self._life.end()
        how = {-9: "SIGKILL", 0: "end in order"}.get(code, f"exit code {code}")
        self.lives.append(how + (f", {len(left)} processes left behind" if left and code == 0 else ""))
        if code != 0:
            self._life.log.unlink(missing_ok=True) if code == -9 else None

    # --- faults ---------------------------------------------------------------------------------------------------

    def _strike_until(self, end: float) -> None:
        drawn = iter(planned(self.seed, FAULTS, 100_000))
        first = True
        while time.monotonic() < end:
            due = time.monotonic() + (25.0 if first else self._chance.uniform(0.5, 1.5) * self._gap_s)
            first = False
            while time.monotonic() < min(due, end):
                if not self._look():
                    return
                time.sleep(0.2)
            if shutil.disk_usage(self._places.root).free < DISK_LEFT:
                self.failure = "The disk was nearly full; the soak ended early."
                return
            if time.monotonic() < end - 20:
                self._strike(next(drawn))

    def _strike(self, each: Planned) -> None:
        # Only what has come to an epoch in this life is in the middle of anything.
        if time.monotonic() - self._life.began_at < 12 or self._life.poll() is not None:
            return
        each = replace(each, number=len(self.struck))
        found = strike(self._scene, self._life, each, resolved(each, self._scene.reached(self._life.pid)))
        # A soak has no end of its input to be before.
        self.struck.append(
            replace(found, in_middle=found.fired and found.epoch > 0 and found.effect != "not felt")
        )
        self._tell(
            f"{found.at_s:7.0f} s  epoch {found.epoch:6}  {found.fault:7} {found.how} at {found.place}: {found.effect}"
        )

    # --- the end --------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self.failure:
            return
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            if (code := self._life.poll()) is not None:
                self._over(code)
                if code == 0:
                    break
                self._begin()
            elif time.monotonic() - self._life.began_at > 10:
                try:
                    open_store(f"file:{self._places.store}").post("stop", {})
                except HoldfastError:
                    pass  # nobody has it just now
                self._life.wait(10.0)
            time.sleep(0.5)
        else:
            self.failure = f"The run did not end in order within {STOP_S:.0f} s."
            return
        status = json.loads((self._places.root / "status.json").read_text())
        self.judged = judge(self._places, status["lost_rows"])
