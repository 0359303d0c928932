"""One window of one variant: an application runs for some seconds with so many epochs, and what it did is counted.

A run begins with an empty state, which does not come again: so a window begins one period behind it, when the state has been growing and falling.
Its bounds lie a little before the moments at which periodic epochs begin: so each variant has as many epochs in it as were asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.bench.meteor.apps import Input, MeteorApp, Row, Walked
from holdfast.bench.meteor.curve import Curve
from holdfast.bench.meteor.gate import Gate, GatedFiles, KernelMetrics, latencies
from holdfast.bench.meteor.grounds import Grounds
from holdfast.bench.meteor.link import LinkedStore
from holdfast.errors import HoldfastError
from holdfast.ids import ElementName
from holdfast.runtime.job import Job
from holdfast.runtime.region.aware_trigger import AwareTrigger
from holdfast.runtime.telling.events import EpochPublished, RunEvent

NEVER_S = 1e6
CHECKED = 3
"""Epochs per window at which variants are compared. A run has been going for one of its periods when its window begins."""
AHEAD = 0.1
"""Of a period, before the moments at which periodic epochs begin."""
POLL_S = 0.02
STEPS_AT_LEAST = 2
"""In a window: on a busy machine one may take longer than the window."""
PATIENCE_S = 120.0
"""For those steps, beyond the window."""
ENOUGH = 0.5
"""Of a window, if its input was over before it."""
LAST_EPOCH_S = 10.0
"""For the last epoch of a window to be published, behind it."""


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
NONE = Variant("none")


@dataclass(frozen=True)
class Epoch:
    begun: float
    published: float
    bytes: int


@dataclass(frozen=True)
class Window:
    """What happened in the seconds of a window. Latency: of a row, from being available until the operator that keeps state has it.
    Epochs: those that began in it and were published."""

    seconds: float
    rows: int
    latency_s: float
    latency_in_epochs_s: float | None
    epochs: tuple[Epoch, ...]
    written: tuple[Row, ...] = ()
    """What its sink showed at the end."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def bytes(self) -> int:
        return sum(epoch.bytes for epoch in self.epochs)


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
    walked: Walked
    seconds: float
    rate: float
    bytes_per_s: float | None

    @property
    def curve(self) -> Curve:
        return Curve(self.walked.sizes)

    @property
    def lead_s(self) -> float:
        """How long a run goes before its window begins."""
        return self.seconds / CHECKED

    def window(self, variant: Variant, epochs: int, rate: float | None = None) -> Window:
        """One run. `rate`: rows that become available in a second; None: as many as can be taken."""
        period = self.seconds / epochs if epochs else NEVER_S
        gate, heard = Gate(self.input.rows_per_step, rate), Heard()
        options: dict[str, Any] = {"mode": variant.mode, "trigger": variant.trigger, "period": period}
        if not epochs:
            options["trigger"] = "periodic"
        elif variant.told:
            options["period"] = None
        with self.grounds.directory("here") as here, self.grounds.directory("store") as store:
            self.grounds.settle()
            made = self.app.build(self.input, here, source=partial(GatedFiles, gate), **options)
            job = self.grounds.submit(made, LinkedStore(store, self.bytes_per_s), [heard])
            try:
                self._prepare(job, variant, gate, epochs, period, rate)
                begun, ended = self._wait(job, gate, period if epochs else 0.0)
            finally:
                gate.close()
                job.close()
            return counted(gate, heard.epochs, begun, ended, shown(here / "out"))

    def pace(self) -> float:
        """Rows per second over the second half of the input, without epochs."""
        gate = Gate(self.input.rows_per_step)
        with self.grounds.directory("here") as here, self.grounds.directory("store") as store:
            self.grounds.settle()
            made = self.app.build(
                self.input, here, source=partial(GatedFiles, gate), period=NEVER_S, trigger="periodic"
            )
            job = self.grounds.submit(made, LinkedStore(store, None), [])
            try:
                kernel = job.loops[ElementName(self.app.kernel)]
                kernel.metrics = KernelMetrics(kernel.name, gate)
                limit = time.monotonic() + PATIENCE_S
                while gate.rows_absorbed < self.input.rows:
                    _look(job, limit)
            finally:
                gate.close()
                job.close()
        half = next((at, rows) for at, rows in gate.absorbed if rows >= self.input.rows / 2)
        return (gate.rows_absorbed - half[1]) / (gate.absorbed[-1][0] - half[0])

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
            wanted = self.curve.minima(expected * self.lead_s, expected * period, epochs)

            def ask(rows: int) -> None:
                if wanted and rows >= wanted[0]:
                    wanted.pop(0)
                    job.trigger_epoch()

            gate.on_absorbed = ask

    def _wait(self, job: Job, gate: Gate, period: float) -> tuple[float, float]:
        """Until the window is over, some steps were absorbed and its epochs are published; returns when it began and ended."""
        limit = time.monotonic() + self.lead_s + self.seconds + PATIENCE_S
        while not gate.begun:
            _look(job, limit)
        begun = gate.begun + self.lead_s - AHEAD * period
        ended = begun + self.seconds
        while time.monotonic() < ended or gate.steps_since(begun) < STEPS_AT_LEAST:
            _look(job, limit)
            if gate.rows_absorbed >= self.input.rows:
                break
        last, is_over = gate.absorbed[-1][0], gate.rows_absorbed >= self.input.rows
        if is_over and last < begun + ENOUGH * self.seconds:
            raise HoldfastError("the input was over before the window was: the machine is less busy now.")
        if is_over or gate.steps_since(begun, ended) < STEPS_AT_LEAST:
            ended = last
        published = time.monotonic() + LAST_EPOCH_S
        while time.monotonic() < published and any(r.controller.under_way for r in job.regions.values()):
            _look(job, limit)
        return begun, ended


def _look(job: Job, limit: float) -> None:
    time.sleep(POLL_S)
    if job.await_termination(timeout=0.0):
        raise HoldfastError("the run ended by itself.")
    if time.monotonic() > limit:
        raise HoldfastError(
            "a run of the benchmark hardly gets on: the figures would mean nothing.",
            cure="Measure on a machine that is less busy.",
        )


def shown(directory: Path) -> tuple[Row, ...]:
    """The rows that a sink has made visible."""
    files = sorted(directory.glob("part-*.parquet"))
    return tuple(tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist())


def counted(
    gate: Gate, epochs: Sequence[Epoch], begun: float, ended: float, written: tuple[Row, ...]
) -> Window:
    within = tuple(epoch for epoch in epochs if begun <= epoch.begun < ended)
    before = [rows for at, rows in gate.absorbed if at <= begun]
    done = [rows for at, rows in gate.absorbed if at <= ended]
    waited = [each for each in latencies(gate, ended) if each[0] >= begun]
    during = [
        (seconds, rows)
        for at, seconds, rows in waited
        if any(at < epoch.published and at + seconds > epoch.begun for epoch in epochs)
    ]
    return Window(
        ended - begun,
        (done[-1] if done else 0) - (before[-1] if before else 0),
        _mean([(seconds, rows) for _, seconds, rows in waited]) or 0.0,
        _mean(during),
        within,
        written,
    )


def _mean(waited: Sequence[tuple[float, int]]) -> float | None:
    rows = sum(rows for _, rows in waited)
    return sum(seconds * rows for seconds, rows in waited) / rows if rows else None
