"""Runs in which time depends on how far they have come, not on how fast the machine is.

A source has nothing until what its last slice caused has happened: steps, reports, decisions. Then time moves on, and there is
a slice. So a step costs so much time, and an epoch that is decided upon at a step begins before the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.clock import ManualClock
from holdfast.language.connectors import Slice
from holdfast.language.graph import SourceSpec
from holdfast.language.topology import Topology
from holdfast.runtime.api import run_to_end
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.job import Job
from holdfast.sources import Rows
from holdfast.testing import submit_local

PATIENCE_S = 2.0
TICK_S = 0.006
"""Longer than a thread that waits for the clock sleeps: it has seen what the clock says."""


class PacedClock(ManualClock):
    """Knows how many regions wait for something to happen."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        """Changes under the run's condition only."""

    def wait(self, condition: threading.Condition, timeout_s: float) -> bool:
        self.waiting += 1
        try:
            return super().wait(condition, timeout_s)
        finally:
            self.waiting -= 1


class Pace:
    """A clock, and whether everything is still."""

    def __init__(self, step_s: float) -> None:
        self.clock = PacedClock()
        self.step_s = step_s
        self.job: Job | None = None
        self.given = threading.Event()
        self.before: Callable[[Job], None] = lambda job: None
        """Called when the run is there, before its first rows."""
        self._since: float | None = None
        """When the source asked first for its next slice."""
        self._ticks_until: float | None = None
        """The clock has moved, and somebody has to see it."""

    def attach(self, job: Job) -> None:
        """From here on the run goes at this pace; before, its sources wait."""
        self.job = job
        self.before(job)
        self.clock.advance(self.step_s)
        for loop in job.loops.values():
            if loop.worker.sources:
                _slow_down(loop, self)
        self.given.set()

    def is_ready(self) -> bool:
        """It is time for the next slice. Called again and again."""
        now = time.monotonic()
        self._since = self._since or now
        if not self._is_still() and now < self._since + PATIENCE_S:
            return False
        if self._ticks_until is None:
            self.clock.advance(self.step_s)
            if any(region._timers.wait_s(1.0) <= 0.001 for region in self._regions()):
                self._ticks_until = now + TICK_S
                return False
        elif now < self._ticks_until:
            return False
        self._since = self._ticks_until = None
        return True

    def _regions(self) -> list[Any]:
        return [] if self.job is None else list(self.job.regions.values())

    def _is_still(self) -> bool:
        assert self.job is not None
        loops = self.job.loops.values()
        with next(iter(loops)).ends.signals.condition:
            regions = [region for region in self._regions() if not region.done.is_set()]
            if self.clock.waiting < len(regions) or any(region._events for region in regions):
                return False
            # An element that stands still for an epoch waits for the source, which waits here: that is still, too.
            return not any(getattr(loop.life, "_mail", ()) for loop in loops) and all(
                loop.resting and (not loop.life.may_step or all(c.empty for c in loop.ends.inputs.values()))
                for loop in loops
                if loop.plan.inputs
            )


def _slow_down(loop: ElementLoop, pace: Pace) -> None:
    next_slices = loop._next_slices

    def paced() -> Any:
        # A source that has said that it has nothing more is not asked for what time it is.
        if not all(run.dry for run in loop.worker.sources) and not pace.is_ready():
            return {}
        return next_slices()

    loop._next_slices = paced  # type: ignore[method-assign]


class PacedRows(Rows):
    """Rows that wait until the pace is there."""

    def __init__(self, pace: Pace, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._pace = pace

    def next_slice(self) -> Slice | None:
        assert self._pace.given.wait(PATIENCE_S)
        return super().next_slice()


def pace_sources(topology: Topology, pace: Pace) -> None:
    """The same for the sources of a topology that is made already."""
    for operator in topology.graph().operators.values():
        if isinstance(operator.spec, SourceSpec):
            _hold(operator.spec.source, pace)


def _hold(source: Any, pace: Pace) -> None:
    next_slice = source.next_slice

    def held() -> Slice | None:
        assert pace.given.wait(PATIENCE_S)
        piece: Slice | None = next_slice()
        return piece

    source.next_slice = held


def run_paced(
    topology: Topology, pace: Pace, store: str, look: Callable[[Job], None] | None = None, **options: Any
) -> Any:
    """Run to the end; returns the final status."""
    job = submit_local(topology, store, "available", clock=pace.clock, rest_s=0.001, **options)
    pace.attach(job)
    if look is not None:
        look(job)
    return run_to_end(job)
