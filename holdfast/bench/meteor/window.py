"""One window of one variant: an application runs for some seconds with so many epochs, and what it did is counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.bench.meteor.apps import Input, MeteorApp
from holdfast.bench.meteor.gate import Gate, GatedFiles, KernelMetrics, latencies
from holdfast.bench.meteor.grounds import Grounds
from holdfast.bench.meteor.link import LinkedStore
from holdfast.errors import HoldfastError
from holdfast.ids import ElementName
from holdfast.protocol.size_curves import average, lowest, settled
from holdfast.protocol.timing.aware_timing import AwareSettings, Occasion, Profile, profile_of
from holdfast.protocol.turning_points import TurnDetector
from holdfast.runtime.job import Job
from holdfast.runtime.region.aware_trigger import AwareTrigger
from holdfast.runtime.telling.events import EpochPublished, RunEvent

NEVER_S = 1e6
LEFT = 0.5
"""Of a period, behind the last epoch of a window, so that it is published within it."""
POLL_S = 0.02
STEPS_AT_LEAST = 2
"""In a window: on a busy machine one may take longer than the window."""
PATIENCE_S = 120.0
"""For those steps, beyond the window."""
PROFILED = 4
"""Periods of the true sizes of which a profile is made."""


@dataclass(frozen=True)
class Variant:
    """A way to establish epochs. `told`: epochs are asked for at the true minima, which are known before."""

    name: str
    mode: str = "async"
    trigger: str = "periodic"
    told: bool = False


VARIANTS = (
    Variant("independent", mode="independent"),
    Variant("token", mode="token"),
    Variant("async"),
    Variant("aware", trigger="aware"),
)
ORACLE = Variant("oracle", trigger="manual", told=True)


@dataclass(frozen=True)
class Epoch:
    begun: float
    published: float
    bytes: int


@dataclass(frozen=True)
class Window:
    """What happened in the seconds of a window. Latency: of a row, from being available until the operator that keeps state has it."""

    seconds: float
    rows: int
    latency_s: float
    latency_in_epochs_s: float | None
    epochs: tuple[Epoch, ...]
    written: tuple[str, ...] = ()
    """What its sink showed at the end, in its order."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def bytes(self) -> int:
        return sum(epoch.bytes for epoch in self.epochs)


@dataclass(frozen=True)
class Curve:
    """The true size of an application's state behind so many rows."""

    points: tuple[tuple[int, int], ...]

    @staticmethod
    def of(app: MeteorApp, input: Input) -> Curve:
        return Curve(tuple(app.true_sizes(input)))

    @property
    def least_over_average(self) -> float:
        """Without the beginning, when nothing was kept yet, and the end of the input, when everything leaves."""
        last = 0.9 * self.points[-1][0]
        known = settled([(float(rows), float(size)) for rows, size in self.points if rows <= last])
        return lowest(known) / average(known)

    def minima(self, rows_per_period: float, periods: int) -> list[int]:
        """The rows at which the state is least, in each of some periods."""
        return [rows for _, rows in self._least(rows_per_period, periods)]

    def least(self, rows_per_period: float, periods: int) -> list[int]:
        """How small it is there."""
        return [size for size, _ in self._least(rows_per_period, periods)]

    def _least(self, rows_per_period: float, periods: int) -> list[tuple[int, int]]:
        found = []
        for number in range(periods):
            low, high = number * rows_per_period, (number + 1) * rows_per_period
            inside = [(size, rows) for rows, size in self.points if low < rows <= high]
            if inside:
                found.append(min(inside))
        return found

    def profile(self, kernel: str, rate: float, period_s: float) -> Profile:
        """What profiling finds after enough periods: a window has too few for it."""
        curve = [(0.0, 0.0), *((rows / rate, float(size)) for rows, size in self.points)]
        periods = max(1, min(PROFILED, int(curve[-1][0] / period_s)))
        bounds = [number * period_s for number in range(periods + 1)]
        element, detector, occasions = ElementName(kernel), TurnDetector(), []
        for at, size in curve:
            for turn in (detector.sample(at, size), detector.foreseen):
                if turn is not None and turn.halved and detector.latest is not None and at <= bounds[-1]:
                    occasions.append(Occasion(at, element, {element: detector.latest}))
        return profile_of({element: curve}, bounds, AwareSettings(period_s), occasions, fresh=True)


@dataclass
class Heard:
    """Epochs as they are published."""

    epochs: list[Epoch] = field(default_factory=list)

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, EpochPublished):
            now = time.monotonic()
            self.epochs.append(Epoch(now - event.ms / 1000, now, event.bytes))


@dataclass(frozen=True)
class Setting:
    """What all windows of an application share. `rate`: rows per second without epochs. `bytes_per_s`: of the way to the store."""

    grounds: Grounds
    app: MeteorApp
    input: Input
    curve: Curve
    seconds: float
    rate: float
    bytes_per_s: float | None

    def window(self, variant: Variant, epochs: int, rate: float | None = None) -> Window:
        """One run. `rate`: rows that become available in a second; None: as many as can be taken."""
        period = self.seconds / (epochs + LEFT) if epochs else NEVER_S
        gate, heard = Gate(self.input.rows_per_step, rate), Heard()
        options: dict[str, Any] = {"mode": variant.mode, "trigger": variant.trigger, "period": period}
        if not epochs:
            options["trigger"] = "periodic"
        elif variant.told:
            options["period"] = None
        with self.grounds.directory("here") as here, self.grounds.directory("store") as store:
            self.grounds.settle()
            made = self.app.build(self.input, here, source=partial(GatedFiles, gate), **options)
            linked = LinkedStore(store, self.bytes_per_s)
            job = self.grounds.submit(made, linked, [heard])
            try:
                self._prepare(job, variant, gate, epochs, period, rate)
                ended = _wait(job, gate, self.seconds, self.input.rows)
            finally:
                gate.close()
                job.close()
            return _counted(gate, heard.epochs, ended, shown(here / "out"))

    def _prepare(
        self, job: Job, variant: Variant, gate: Gate, epochs: int, period: float, rate: float | None
    ) -> None:
        kernel = job.loops[ElementName(self.app.kernel)]
        kernel.metrics = KernelMetrics(kernel.name, gate)
        expected = rate or self.rate
        if not epochs:
            return
        if variant.trigger == "aware":
            (region,) = job.regions.values()
            assert isinstance(region.trigger, AwareTrigger)
            region.trigger.know(self.curve.profile(self.app.kernel, expected, period))
        if variant.told:
            wanted = self.curve.minima(expected * period, epochs)

            def ask(rows: int) -> None:
                if wanted and rows >= wanted[0]:
                    wanted.pop(0)
                    job.trigger_epoch()

            gate.on_absorbed = ask


def _wait(job: Job, gate: Gate, seconds: float, rows: int) -> float:
    """Until the window is over and some steps were absorbed; returns when that was."""
    limit = time.monotonic() + seconds + PATIENCE_S
    while not gate.begun or time.monotonic() < gate.begun + seconds or len(gate.absorbed) < STEPS_AT_LEAST:
        time.sleep(POLL_S)
        if job.await_termination(timeout=0.0):
            raise HoldfastError("the run ended by itself.")
        if time.monotonic() > limit:
            raise HoldfastError(
                f"{len(gate.absorbed)} steps in {seconds + PATIENCE_S:.0f} s: the figures would mean nothing.",
                cure="Measure on a machine that is less busy.",
            )
        if gate.rows_absorbed >= rows:
            return gate.absorbed[-1][0]
    return max(gate.begun + seconds, gate.absorbed[STEPS_AT_LEAST - 1][0])


def shown(directory: Path) -> tuple[str, ...]:
    """The rows that a sink has made visible, in the order of its epochs."""
    files = sorted(directory.glob("part-*.csv"))
    return tuple(line for file in files for line in file.read_text().splitlines()[1:])


def _counted(gate: Gate, epochs: Sequence[Epoch], ended: float, written: tuple[str, ...]) -> Window:
    within = tuple(epoch for epoch in epochs if epoch.published <= ended)
    done = [rows for at, rows in gate.absorbed if at <= ended]
    waited = latencies(gate, ended)
    during = [
        (seconds, rows)
        for at, seconds, rows in waited
        if any(at < epoch.published and at + seconds > epoch.begun for epoch in within)
    ]
    return Window(
        ended - gate.begun,
        done[-1] if done else 0,
        _mean([(seconds, rows) for _, seconds, rows in waited]) or 0.0,
        _mean(during),
        within,
        written,
    )


def _mean(waited: Sequence[tuple[float, int]]) -> float | None:
    rows = sum(rows for _, rows in waited)
    return sum(seconds * rows for seconds, rows in waited) / rows if rows else None
