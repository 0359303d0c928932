"""The run under faults: as many lives as it takes, a fault in each stretch of its input, and then to the end.

A run is kept busy while a fault is due: input comes a step at a time, so that something is under way whenever the fault strikes, and the
input is not at its end before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from holdfast.testing.ordeal.life import Life
from holdfast.testing.ordeal.process import LifeProcess
from holdfast.testing.ordeal.schedule import Planned, resolved
from holdfast.testing.ordeal.strikes import RESTARTED, Scene, Struck, strike

NEARLY_ALL = 0.97
EPOCH_S = 10.0
"""So long an epoch is waited for before a fault strikes without one."""
LIVES_MORE = 6


class Hung(Exception):
    """Nothing moved any more."""


class Failed(Exception):
    """The run ended by itself, though nothing had been done to it."""


class Lives(Protocol):
    """Who begins lives and clears up behind them."""

    def begin(self, life: Life) -> LifeProcess: ...

    def ended(self, life: Life, process: LifeProcess) -> dict[str, Any]: ...


class FaultyRun:
    """The run under faults. `report`: of the life that came to the end, if one did."""

    def __init__(
        self,
        lives: Lives,
        life: Life,
        scene: Scene,
        limit_s: float,
        patience_s: float,
        tell: Callable[[str], None],
    ) -> None:
        self.report: dict[str, Any] | None = None
        self.struck: list[Struck] = []
        self._lives, self._life, self._scene, self._tell = lives, life, scene, tell
        self._limit_s, self._patience_s = limit_s, patience_s
        self._moved = (scene.moved(), time.monotonic())
        self._struck_before = 0
        self._epoch_before = 0

    def run(self, schedule: Sequence[Planned], reached: Sequence[str]) -> str:
        """Strike as planned and come to the end. Answers what broke the run, or nothing."""
        until = self._scene.began_at + self._limit_s
        try:
            self._start()
            for number, each in enumerate(schedule):
                if time.monotonic() > until:
                    break
                following = schedule[number + 1].share if number + 1 < len(schedule) else NEARLY_ALL
                self._allow(each.share, following)
                if self._await_moment(each):
                    self._tell(f"fault {number + 1} of {len(schedule)}: {each.fault}")
                    self.struck.append(strike(self._scene, self._process, each, resolved(each, reached)))
            self._allow(1.0, 1.0)
            for _ in range(len(schedule) + LIVES_MORE):
                if self._over():
                    return ""
        except (Hung, Failed) as error:
            return str(error)
        return "the run did not come to its end, however often it was started again"

    def _start(self) -> None:
        self._process = self._lives.begin(self._life)
        self._epoch_before, self._struck_before = self._scene.epoch(), len(self.struck)

    def _allow(self, share: float, most: float) -> None:
        self._life = replace(self._life, allowed=share, most=most)
        self._process.tell(allow=share, most=most)

    def _await_moment(self, each: Planned) -> bool:
        """The input has come so far, and there is an epoch of this life. False: the run is over."""
        epoch_due = math.inf
        while True:
            self._look()
            if self._process.poll() is not None and self._again():
                return False
            if self._scene.share() >= each.share:
                epoch_due = min(epoch_due, time.monotonic() + EPOCH_S)
                has_epoch = not self._scene.has_regions or self._scene.epoch() > self._epoch_before
                if has_epoch or time.monotonic() > epoch_due:
                    time.sleep(each.delay_s)
                    return self._process.poll() is None or not self._again()
            time.sleep(0.005)

    def _over(self) -> bool:
        """Wait for the end of this life; True if that is the end of the run, else another one has begun."""
        while self._process.poll() is None:
            self._look()
            time.sleep(0.01)
        return self._again()

    def _again(self) -> bool:
        """The life is over. True: well; else it is gone on with in another one, if something had been done to it."""
        report = self._lives.ended(self._life, self._process)
        if report["code"] == 0:
            self.report = report
            return True
        if len(self.struck) == self._struck_before:
            said = report.get("message") or self._process.last_words(3)
            raise Failed(f"a life in which no fault struck ended with code {report['code']}: {said}")
        last = self.struck[-1]
        if last.effect != RESTARTED:
            told = report.get("error", "ended")
            self.struck[-1] = replace(last, effect=f"{told}, {RESTARTED}")
        self._life = replace(self._life, number=self._life.number + 1)
        self._start()
        return False

    def _look(self) -> None:
        """Hung if nothing has moved for too long."""
        now, moved = time.monotonic(), self._scene.moved()
        if moved != self._moved[0] or now - self._process.began_at < 1.0:
            self._moved = (moved, now)
        elif now - self._moved[1] > self._patience_s:
            self._process.end_at_once()
            self._lives.ended(self._life, self._process)
            raise Hung(
                f"the run hung: nothing moved for {self._patience_s:.0f} s, at {self._scene.last_reached()}"
            )
