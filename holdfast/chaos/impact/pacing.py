"""Runs that are the same each time: one slice after another goes through the whole graph, and time is counted in slices.

A source gives its next slice when nothing is under way any more, and with each the clock moves by one beat. So checkpoints and epochs,
which come by that clock, lie between the same rows in every run, whatever the machine's pace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.clock import ManualClock
from holdfast.ids import OperatorName
from holdfast.language.connectors import Slice, Source
from holdfast.language.graph import Graph, SourceSpec
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.job import Job

PATIENCE_S = 20.0
"""Whoever waits for longer goes on: an element may be paused for a reason that only time can end."""
POLL_S = 0.0005
EPOCH_S = 0.006
"""How long regions get to notice that time has passed."""


class Pace:
    """A clock that moves with the sources. `job` is set when the run has started: sources wait for it."""

    def __init__(self, beat_s: float, look: Callable[[Job], None] = lambda job: None) -> None:
        self.clock = ManualClock()
        self.rows = 0
        """That sources gave, as far as they know."""
        self.slices = 0
        self._beat_s, self._look = beat_s, look
        self._given: dict[OperatorName, int] = {}
        self._dry: set[OperatorName] = set()
        self._waiting: set[str] = set()
        """Threads that wait for their turn."""
        self._started = threading.Event()
        self._job: Job | None = None
        self._lock = threading.Lock()

    def started(self, job: Job) -> None:
        self._job = job
        self._started.set()

    def follow(self, graph: Graph) -> None:
        """Let the sources of a graph go by this clock."""
        for op in graph.operators.values():
            if isinstance(op.spec, SourceSpec):
                self._given[op.name] = 0
                self._wrap(op.name, op.spec.source)

    def _wrap(self, name: OperatorName, source: Source) -> None:
        ask = source.next_slice

        def paced() -> Slice | None:
            piece = ask()
            if piece is None:
                self._dry.add(name)
            else:
                self._await_turn(name)
                self._note(name, source.count_rows(piece) or 0)
            return piece

        source.next_slice = paced  # type: ignore[method-assign]

    def _note(self, name: OperatorName, rows: int) -> None:
        with self._lock:
            self._given[name] += 1
            self.slices += 1
            self.rows += rows
        self.clock.advance(self._beat_s)
        if self._job is not None and self._job.regions:
            time.sleep(EPOCH_S)

    def _await_turn(self, name: OperatorName) -> None:
        until, me = time.monotonic() + PATIENCE_S, threading.current_thread().name
        self._started.wait(PATIENCE_S)
        self._waiting.add(me)
        while not (self._is_first(name) and self._is_still()) and time.monotonic() < until:
            time.sleep(POLL_S)
        if self._job is not None:
            self._look(self._job)
        self._waiting.discard(me)

    def _is_first(self, name: OperatorName) -> bool:
        """Sources take turns, so that rows of several meet in the same order in every run."""
        with self._lock:
            turns = [(given, other) for other, given in self._given.items() if other not in self._dry]
            return not turns or min(turns)[1] == name

    def _is_still(self) -> bool:
        job, me = self._job, threading.current_thread().name
        others = [] if job is None else [loop for name, loop in job.loops.items() if f"element-{name}" != me]
        return all(f"element-{loop.name}" in self._waiting or _is_at_rest(loop) for loop in others)


def _is_at_rest(loop: ElementLoop) -> bool:
    """It has nothing to do, or waits for those who do."""
    if loop.finished:
        return True
    if loop.life.is_storing:
        return False
    return loop.resting and (not loop.life.may_step or all(each.empty for each in loop.ends.inputs.values()))
