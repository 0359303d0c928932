"""Runs in which time depends on how far they have come, not on how fast the machine is.

Each slice of the source moves the clock, and waits until what the one before caused has happened: steps, reports, epochs.
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
from holdfast.runtime.job import Job
from holdfast.sources import Rows
from holdfast.testing import submit_local

PATIENCE_S = 2.0
POLL_S = 0.0005
TICK_S = 0.006
"""Longer than a thread that waits for the clock sleeps: it has seen what the clock says."""


class Pace:
    """A clock, and whether everything is still."""

    def __init__(self, step_s: float) -> None:
        self.clock = ManualClock()
        self.step_s = step_s
        self.job: Job | None = None
        self.given = threading.Event()

    def advance(self) -> None:
        """Wait until nothing is under way, then let time pass."""
        self._settle()
        self.clock.advance(self.step_s)
        if any(region._timers.wait_s(1.0) <= 0.001 for region in self._regions()):
            time.sleep(TICK_S)
            self._settle()

    def _regions(self) -> list[Any]:
        return [] if self.job is None else list(self.job.regions.values())

    def _settle(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self._is_still() and time.monotonic() < until:
            time.sleep(POLL_S)

    def _is_still(self) -> bool:
        assert self.given.wait(PATIENCE_S)
        assert self.job is not None
        if any(region._events for region in self._regions()):
            return False
        fed = [loop for loop in self.job.loops.values() if loop.plan.inputs]
        # An element that stands still for an epoch waits for the source, which waits here: that is still, too.
        return all(
            loop.resting and (not loop.life.may_step or all(c.empty for c in loop.ends.inputs.values()))
            for loop in fed
        )


class PacedRows(Rows):
    """Rows of which every slice takes a step of the pace's time."""

    def __init__(self, pace: Pace, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._pace = pace

    def next_slice(self) -> Slice | None:
        piece = super().next_slice()
        if piece is not None:
            self._pace.advance()
        return piece


def pace_sources(topology: Topology, pace: Pace) -> None:
    """The same for the sources of a topology that is made already."""
    for operator in topology.graph().operators.values():
        if isinstance(operator.spec, SourceSpec):
            _pace(operator.spec.source, pace)


def _pace(source: Any, pace: Pace) -> None:
    next_slice = source.next_slice

    def paced() -> Slice | None:
        piece: Slice | None = next_slice()
        if piece is not None:
            pace.advance()
        return piece

    source.next_slice = paced


def run_paced(
    topology: Topology, pace: Pace, store: str, look: Callable[[Job], None] | None = None, **options: Any
) -> Any:
    """Run to the end; returns the final status."""
    pace.given.clear()
    job = submit_local(topology, store, "available", clock=pace.clock, rest_s=0.001, **options)
    pace.job = job
    pace.given.set()
    if look is not None:
        look(job)
    return run_to_end(job)
