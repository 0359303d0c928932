"""Whom to kill, and when: planned from a seed in terms of the input's progress, then done for real.

A kill counts only if an epoch was published since the last recovery, input is still to come, and it was felt: a worker
that was killed while nobody needed it is replaced by Spark silently, so that kill is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal

from holdfast.demo.driver_process import Driver
from holdfast.demo.feeder import Feeder
from holdfast.demo.topology import PERIOD_S
from holdfast.demo.watch import Watch
from holdfast.errors import HoldfastError
from holdfast.testing import processes

Kind = Literal["worker", "driver"]
Effect = Literal["region reset", "clicks lost", "task retried", "driver restarted"]


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """Due when `tick` ticks have arrived and an epoch was published; then after `delay_s`, somewhere in an epoch."""

    kind: Kind
    tick: int
    delay_s: float


@dataclass(slots=True)
class Kill:
    """A kill that was done and felt."""

    kind: Kind
    pid: int
    epoch: int
    """The newest epoch at that moment."""
    ticks: int
    log_bytes: int
    """Length of the notification log at that moment."""
    effect: Effect
    at: float
    recovered_s: float | None = None
    """Seconds until the next epoch was published."""


MARGIN_TICKS = 8
"""How far the stream may run ahead of a kill that is due."""
HUNTING_TICKS = 4
KEPT_TICKS = 2
ATTEMPTS_MAX = 5
PATIENCE_S = 150.0
BUSY_WITHIN_S = 4.0
FELT_WITHIN_S = 4.0


def plan_kills(seed: int, kills: int, ticks: int) -> tuple[PlannedKill, ...]:
    """Workers and drivers in turn, spread over the first two thirds of the stream."""
    rng = Random(f"holdfast nemesis {seed}")
    slot = ticks * 0.6 / max(1, kills)
    kinds: tuple[Kind, Kind] = ("worker", "driver")
    return tuple(
        PlannedKill(
            kind=kinds[number % 2],
            tick=max(1, round(ticks * 0.08 + slot * (number + 0.6 * rng.random()))),
            delay_s=round(rng.uniform(0.0, PERIOD_S), 3),
        )
        for number in range(kills)
    )


class Nemesis:
    """Carries out a plan against a run. `turn` is called while waiting: it shows progress."""

    def __init__(
        self,
        tag: str,
        watch: Watch,
        feeder: Feeder,
        start_driver: Callable[[], Driver],
        log: Path,
        turn: Callable[[], None],
    ) -> None:
        self.done: list[Kill] = []
        self.unfelt = 0
        self.driver = start_driver()
        self._tag = tag
        self._watch = watch
        self._feeder = feeder
        self._start_driver = start_driver
        self._log = log
        self._turn = turn
        self._recovered_after = -1

    def carry_out(self, plan: tuple[PlannedKill, ...]) -> None:
        """All planned kills, in order; afterwards the stream may end."""
        for planned in plan:
            self._let_arrive(planned.tick + MARGIN_TICKS)
            self.until(partial(self._has_arrived, planned.tick), "input")
            unfelt_before = self.unfelt
            while not self._attempt(planned, may_miss=self.unfelt - unfelt_before < ATTEMPTS_MAX):
                self.unfelt += 1
        self._recover()
        self._feeder.allow(self._feeder.ticks)

    def _let_arrive(self, ticks: int) -> None:
        """Something to do until the next kill; some input is kept for after the last one."""
        self._feeder.allow(min(ticks, self._feeder.ticks - KEPT_TICKS))

    def _has_arrived(self, tick: int) -> bool:
        return self._feeder.released >= min(tick, self._feeder.ticks - KEPT_TICKS)

    def until(self, condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
        """Wait, showing progress; raises if the driver ends by itself or it takes too long."""
        if not self._wait(condition, within_s):
            raise HoldfastError(
                f"the demonstration waited {within_s:g} s for {what}: {self.driver.last_words()}",
                cure=f"Look at {self.driver.log}.",
            )

    def _wait(self, condition: Callable[[], bool], within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while True:
            self._watch.poll()
            self._turn()
            if condition():
                return True
            if time.monotonic() >= deadline:
                return False
            self.driver.check()
            time.sleep(0.1)

    def _recover(self) -> None:
        """Wait for an epoch published after the last kill."""
        self.until(lambda: self._watch.published_number > self._recovered_after, "an epoch")
        if self.done and self.done[-1].recovered_s is None and self._watch.published_at is not None:
            self.done[-1].recovered_s = round(self._watch.published_at - self.done[-1].at, 1)

    def _attempt(self, planned: PlannedKill, may_miss: bool) -> bool:
        """True if it was felt. Worker after worker killed in vain ends with the driver, which always feels it."""
        self._recover()
        deadline = time.monotonic() + planned.delay_s
        self._wait(lambda: time.monotonic() >= deadline, PATIENCE_S)
        if planned.kind == "driver" or not may_miss:
            return self._kill_driver()
        self._let_arrive(self._feeder.released + HUNTING_TICKS)  # there shall be something to be busy with
        return self._kill_worker()

    def _kill_worker(self) -> bool:
        self._watch.poll()
        resets, losses = len(self._watch.resets), self._watch.losses
        failed = self.driver.tasks_failed()
        victim = processes.busy(self._tag, "worker", within_s=BUSY_WITHIN_S)
        if victim is None or not processes.send(victim.pid, self._tag):
            return False
        kill = self._note("worker", victim.pid, "task retried")

        def followed() -> bool:
            return len(self._watch.resets) > resets or self._watch.losses > losses

        if not self._wait(lambda: followed() or self.driver.tasks_failed() > failed, FELT_WITHIN_S):
            return False
        # A failed task is reported before what it leads to; if nothing comes of it, Spark has tried the task again.
        if self._wait(followed, FELT_WITHIN_S):
            kill.effect = "region reset" if len(self._watch.resets) > resets else "clicks lost"
        return self._count(kill)

    def _kill_driver(self) -> bool:
        kill = self._note("driver", self.driver.process.pid, "driver restarted")
        self.driver.kill_group()
        kill.log_bytes = self._log_bytes()
        self._watch.poll()
        kill.epoch = self._watch.epoch
        self.driver = self._start_driver()
        return self._count(kill)

    def _note(self, kind: Kind, pid: int, effect: Effect) -> Kill:
        return Kill(
            kind, pid, self._watch.epoch, self._feeder.released, self._log_bytes(), effect, time.time()
        )

    def _count(self, kill: Kill) -> bool:
        self._recovered_after = max(
            self._watch.published_number, self._watch.resets[-1].number if self._watch.resets else -1
        )
        self.done.append(kill)
        return True

    def _log_bytes(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0
