"""One run of a study: the program over all its input, perhaps with some operators killed in the middle.

To kill operators means what a crash of the process that hosts them would: the step of their element fails and costs its rows, their
state is gone, and each goes on from its own checkpoint, from its region's epoch, or from nothing. Other operators go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.chaos.impact.pacing import Pace
from holdfast.chaos.impact.recording import redirected
from holdfast.errors import HoldfastError
from holdfast.ids import ElementName, OperatorName
from holdfast.language.graph import Graph, SourceSpec
from holdfast.runtime.api import run_to_end
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.failures import OperatorsKilled
from holdfast.runtime.job import Job
from holdfast.runtime.runs.operator_runs import SinkRun, SourceRun
from holdfast.store.urls import open_store

REST_S = 0.002


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a study share."""

    program: Callable[[], Graph]
    """The program, made anew for each run."""
    engine: Callable[[], Engine]
    place: Path
    """Stores lie beneath."""
    beat_s: float
    close: bool = False
    slice_rows: int | None = None
    """Sources give at most so many rows at once."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Who is killed, and when."""

    operators: tuple[OperatorName, ...]
    element: ElementName
    at: float
    """How far the element is then: see `Progress`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator is."""

    element: ElementName
    region: str | None
    has_state: bool


@dataclass(frozen=True)
class Observed:
    """What a run did."""

    rows: Mapping[OperatorName, pa.Table | None]
    """By sink."""
    places: Mapping[OperatorName, Place]
    progress: Mapping[ElementName, int]
    state_bytes: Mapping[OperatorName, int]
    """The largest that was seen."""
    killed_at: float | None
    slices: int
    source_rows: int
    lost_rows: Mapping[str, int] = field(default_factory=dict)


class Progress:
    """Counts what each element takes, and strikes. Slices for elements that read sources, else rows."""

    def __init__(self, pace: Pace, victim: Victim | None) -> None:
        self.taken: dict[ElementName, int] = {}
        self.killed_at: float | None = None
        self._pace, self._victim = pace, victim

    def before_step(self, element: ElementName, work: Work) -> None:
        self.taken[element] = self.taken.get(element, 0) + (len(work.pieces) or work.batch_rows)
        victim = self._victim
        if victim is None or victim.element != element or self.killed_at is not None:
            return
        if self.taken[element] > victim.at:
            self.killed_at = self._pace.clock.monotonic()
            raise OperatorsKilled(victim.operators)


class Sizes:
    """The largest state of each operator that was seen."""

    def __init__(self) -> None:
        self.most: dict[OperatorName, int] = {}

    def look(self, job: Job) -> None:
        for loop in job.loops.values():
            for run in loop.worker.runs.values():
                if not isinstance(run, SourceRun | SinkRun):
                    self.most[run.name] = max(self.most.get(run.name, 0), run.state_size())


def run_once(
    setting: Setting, name: str, victim: Victim | None = None, kept: Mapping[str, float | None] | None = None
) -> Observed:
    """Run to the end. `kept`: operators that get another checkpoint period than in the program; None: they get none."""
    graph = _with_periods(setting.program(), kept or {})
    _cut(graph, setting.slice_rows)
    sizes = Sizes()
    pace = Pace(setting.beat_s, sizes.look)
    graph, recorders = redirected(graph, pace.clock)
    pace.follow(graph)
    progress = Progress(pace, victim)
    engine = setting.engine()
    engine.before_step = progress.before_step
    store = open_store(f"file:{setting.place / name}")
    options: dict[str, Any] = {"clock": pace.clock, "rest_s": REST_S, "close": setting.close}
    try:
        job = Job(graph, engine, store, until="available", **options).start()
    except BaseException:
        engine.stop()
        raise
    pace.started(job)
    status = run_to_end(job)
    if victim is not None and progress.killed_at is None:
        raise HoldfastError(f"{', '.join(victim.operators)} had come to its end before it could be killed.")
    return Observed(
        {sink: recorder.taken() for sink, recorder in recorders.items()},
        places_of(job),
        progress.taken,
        sizes.most,
        progress.killed_at,
        pace.slices,
        pace.rows,
        dict(status.lost_rows),
    )


def places_of(job: Job) -> dict[OperatorName, Place]:
    places: dict[OperatorName, Place] = {}
    for element in job.plan.elements:
        runs = job.loops[element.name].worker.runs
        stateful = {n for n, run in runs.items() if not isinstance(run, SourceRun | SinkRun)}
        region = None if element.region is None else str(element.region)
        places |= {op.name: Place(element.name, region, op.name in stateful) for op in element.operators}
    return places


def _with_periods(graph: Graph, kept: Mapping[str, float | None]) -> Graph:
    changed = {
        OperatorName(name): replace(
            graph.operators[OperatorName(name)],
            annotations=replace(graph.operators[OperatorName(name)].annotations, checkpoint_every_s=every),
        )
        for name, every in kept.items()
    }
    return replace(graph, operators={**graph.operators, **changed})


def _cut(graph: Graph, rows: int | None) -> None:
    for op in graph.operators.values():
        if rows is not None and isinstance(op.spec, SourceSpec):
            op.spec.source.cut_smaller(rows)


def victims_of(golden: Observed, chosen: Sequence[str], share: float) -> list[Victim]:
    """One for each operator with a state outside of regions; the others of an element die together: it makes no difference."""
    apart, together = [], dict[ElementName, list[OperatorName]]()
    for name, place in golden.places.items():
        if chosen and name not in chosen:
            continue
        if golden.progress.get(place.element, 0) == 0:
            continue  # it never had anything to do
        if place.has_state and place.region is None:
            apart.append((place.element, [name]))
        else:
            together.setdefault(place.element, []).append(name)
    return [
        Victim(tuple(names), element, share * golden.progress[element])
        for element, names in [*apart, *together.items()]
    ]
