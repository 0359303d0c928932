"""Where the bytes of an epoch come from: what the state had at least, when the epoch came, what was on its way, and what every epoch stores.

Runs of the examples in time of their input; true sizes come from their operators without any engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from app_data import App
from paced import Pace, pace_sources, run_paced

from holdfast.ids import ElementName
from holdfast.runtime.job import Job
from holdfast.runtime.telling import events as e


@dataclass(frozen=True)
class Case:
    """An application at a pace. `true_sizes(here)`: bytes that its operators keep behind each step. `kernel`: the element that has them."""

    app: App
    prepare: Callable[[Path], None]
    true_sizes: Callable[[Path], list[int]]
    kernel: str
    rows_per_step: int
    step_s: float
    period_s: float


@dataclass(frozen=True)
class Stored:
    """One epoch: how many steps the kernel had done, and bytes of its state, of batches, in all."""

    step: int
    state: int
    batches: int
    bytes: int


@dataclass
class Trace:
    """Of one run."""

    case: Case
    sizes: list[int]
    epochs: list[Stored] = field(default_factory=list)
    decided: list[e.EpochDecided] = field(default_factory=list)
    job: Job | None = None
    steps: int = 0

    def hear(self, event: e.RunEvent) -> None:
        if isinstance(event, e.EpochDecided):
            self.decided.append(event)
        if isinstance(event, e.EpochPublished):
            assert self.job is not None
            (region,) = self.job.regions.values()
            assert region.manifest is not None
            parts = region.manifest.parts
            sizes = {True: 0, False: 0}
            for part in parts.values():
                for piece in part.pieces():
                    sizes["batch" in piece.kind] += piece.ref.size
            kernel = parts[ElementName(self.case.kernel)]
            state = sum(part.bytes for part in kernel.operators.values())
            self.epochs.append(Stored(self.step_of(state), state, sizes[True], event.bytes))

    def step_of(self, state: int) -> int:
        """The step at which the kernel was pinned: the nearest one whose true size fits best."""
        near = range(max(0, self.steps - 3), min(len(self.sizes), self.steps + 1))
        return min(near, key=lambda step: (abs(self.sizes[step] - state), -step), default=0)


def run(case: Case, here: Path, trigger: str, asks: frozenset[int] = frozenset()) -> Trace:
    """`asks`: steps of the kernel behind which an epoch is asked for."""
    (here / "in").mkdir(parents=True)
    case.prepare(here)
    made = case.app.build(here, period=case.period_s if trigger != "manual" else None, trigger=trigger,
                          rows_per_step=case.rows_per_step)  # fmt: skip
    trace, pace = Trace(case, case.true_sizes(here)), Pace(case.step_s)
    pace_sources(made, pace)
    pace.before = lambda job: _count_steps(job, trace, asks)
    run_paced(made, pace, f"file:{here / 'store'}", subscribers=[trace.hear])
    case.app.check(here, True)
    return trace


def _count_steps(job: Job, trace: Trace, asks: frozenset[int]) -> None:
    trace.job = job
    metrics = job.loops[ElementName(trace.case.kernel)].metrics
    step_done = metrics.step_done

    def counted(*given: Any) -> None:
        step_done(*given)
        trace.steps += 1
        if trace.steps - 1 in asks:
            job.trigger_epoch()

    metrics.step_done = counted  # type: ignore[method-assign]


# --- periods and what is best in them --------------------------------------------------------------------------------


def best_steps(case: Case, sizes: list[int], profiled: int = 3) -> list[int]:
    """Of each whole period behind those that are profiled, the step behind which the state is least."""
    count = int(len(sizes) * case.step_s / case.period_s)
    bounds = [round(number * case.period_s / case.step_s) for number in range(profiled, count + 1)]
    return [min(range(begin, end), key=lambda step: sizes[step]) for begin, end in pairwise(bounds)]


@dataclass(frozen=True)
class Shares:
    """Mean bytes per epoch. They add up: least + choice + late + batches + rest = all."""

    least: float
    choice: float
    late: float
    batches: float
    rest: float

    @property
    def all(self) -> float:
        return self.least + self.choice + self.late + self.batches + self.rest


def shares_of(trace: Trace, epochs: list[Stored], decided: list[float] | None = None) -> Shares:
    """`decided`: sizes when the epochs were decided upon."""
    least = fmean(trace.sizes[step] for step in best_steps(trace.case, trace.sizes))
    state = fmean(epoch.state for epoch in epochs)
    when = state if decided is None else fmean(decided)
    batches = fmean(epoch.batches for epoch in epochs)
    whole = fmean(epoch.bytes for epoch in epochs)
    return Shares(least, when - least, state - when, batches, whole - state - batches)
