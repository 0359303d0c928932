"""One thread per element: gather, step, emit, rest. What is allowed, and what a failure means, its *life* decides.

The worker works, the life decides, this file connects them. Nothing happens to an element but between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import NoSpaceError
from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.language.connectors import Slice
from holdfast.operators.shared.timed import TIMELESS
from holdfast.runtime.element.evaluation import Outcome, Work
from holdfast.runtime.element.gauges import Gauges
from holdfast.runtime.element.life import Life
from holdfast.runtime.element.row_counting import count_later
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import StepName
from holdfast.runtime.links.connection import Connection, Interrupted, Parcel, Signals
from holdfast.runtime.metrics import ElementMetrics
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.telling.events import (
    ElementPaused,
    GroupSizeChosen,
    RowsLate,
    RowsLeftOut,
    RowsMalformed,
    RowsTimeless,
)
from holdfast.runtime.telling.feed import Announce

ROWS_PER_STEP = 1_000_000
REST_S = 0.05
"""How long an element with nothing to do rests, unless something wakes it, before it asks its sources again."""
LONG_RESTS = 5
"""So many times as long rests one that is told of whatever it waits for."""
SPACE_PROBE_S = 0.5
LONG_S = 2.0
"""A call into the user's code that takes longer is named in the status."""
LEFT_OUT: Mapping[str, type[RowsLeftOut]] = {
    "late": RowsLate, TIMELESS: RowsTimeless, "malformed": RowsMalformed,
}  # fmt: skip
"""What operators and sources count of rows that they leave out → how it is told."""


@dataclass(frozen=True)
class Ends:
    """The connections of one element, and what wakes its thread."""

    inputs: Mapping[ConnectionId, Connection]
    outputs: Mapping[ConnectionId, Connection]
    signals: Signals

    def sent_since(self, before: Mapping[ConnectionId, int]) -> dict[ConnectionId, int]:
        """Rows that went out since `before`, by connection."""
        return {id: self.outputs[id].sent - sent for id, sent in before.items()}

    def throw_away(self) -> tuple[dict[ConnectionId, int], int]:
        """Take some input that nobody will process: how far it was taken by connection, and how many rows it was."""
        rows, taken = 0, {}
        with self.signals.condition:
            for id, connection in self.inputs.items():
                for parcel in connection.take(ROWS_PER_STEP):
                    rows += parcel.batch.rows
                    parcel.batch.hold.let_go()
                    taken[id] = connection.taken
        return taken, rows


class ElementLoop:
    """The loop of one element. `run` is the thread's body; `life` is set before it."""

    life: Life

    def __init__(self, worker: Worker, ends: Ends, rest_s: float) -> None:
        self.plan = worker.element
        self.worker = worker
        self.metrics = ElementMetrics(self.plan.name)
        self.gauges = Gauges(worker, worker.clock)
        self.ends = ends
        self.clock = worker.clock
        self.finished = False
        self.exhausted = False
        """True while the bounded sources of this element have nothing more and its inputs from outside are closed."""
        self.stopping = False
        self.resting = False
        """True while the element has nothing to do and waits; changes under `signals.condition` only."""
        self._rest_s = rest_s
        self._woken = False
        """True if `wake` was called since the last rest; changes under `signals.condition` only."""
        self._step = 0
        self._left_out: dict[tuple[str, str], int] = {}
        """Late rows that were told, by operator, or that the first step found."""

    @property
    def name(self) -> ElementName:
        return self.plan.name

    @property
    def is_stuck(self) -> bool:
        """True if it can go on only when a neighbour does: nothing comes in, or nothing more goes out."""
        with self.ends.signals.condition:
            if self.metrics.waiting == "space downstream":
                return True
            return self.resting and all(connection.empty for connection in self.ends.inputs.values())

    def status(self, now: float) -> dict[str, Any]:
        """For people: figures, and a call into the user's code that does not return."""
        figures = self.metrics.as_dict(now)
        sources = {
            name: {**lag, **self.metrics.of_source(name, now)} for name, lag in self.gauges.waiting().items()
        }
        seen = {"sources": sources, "state": dict(self.gauges.state)}
        return {**figures, **seen, "waiting": self.long_call or figures["waiting"]}

    @property
    def long_call(self) -> str:
        """A call into the user's code that does not return, for people."""
        for run in self.worker.hosted:
            what, age = run.busy(time.monotonic()) or ("", 0.0)
            if age >= LONG_S:
                return f"{what} of operator {run.name}, for {age:.0f} s"
        return ""

    def left_out(self) -> Iterator[RowsLeftOut | GroupSizeChosen]:
        """Late, timeless and malformed rows that were counted since this was asked last, and sizes that were chosen. Called by the monitor."""
        for run in self.worker.runs.values():
            if isinstance(run, KeyedRun) and run.groups is not None:
                costs = {str(rows): round(s, 6) for rows, s in run.groups.seconds_by_rows.items()}
                yield from (GroupSizeChosen(run.name, rows, costs) for rows in run.groups.news())
        for (operator, what), total in left_out_of(self.metrics.counts).items() if self._step else ():
            before = self._left_out.get((operator, what), 0)
            if total > before:  # fewer after a reset: they are counted again, and told once
                self._left_out[operator, what] = total
                yield LEFT_OUT[what](self.name, operator, total - before, total)

    def interrupt(self) -> None:
        """What the element is doing no longer matters: cancel its jobs."""
        self.worker.engine.cancel(self.name)

    def stop(self) -> None:
        """End at once."""
        with self.ends.signals.condition:
            self.stopping = True
            self.ends.signals.condition.notify_all()
        self.interrupt()

    def wake(self) -> None:
        """There may be something new: the next rest is skipped, the present one ends. Any thread may call it."""
        with self.ends.signals.condition:
            self._woken = True
            self.ends.signals.condition.notify_all()

    def run(self) -> None:
        """Thread body."""
        try:
            self.life.begin()
            while not self.stopping and not self.life.is_over():
                if not (self.life.turn() or self._work()):
                    self._rest()
            if not self.stopping:
                self.life.end()
        except Interrupted:
            pass
        except BaseException as error:
            self.life.fatal(error)
        finally:
            self.gauges.look(now=True)
            self.life.close()
            self.worker.close()
            self.ends.signals.notify()

    # --- one turn -----------------------------------------------------------------------------------------------

    def _work(self) -> bool:
        if not self.life.may_step:
            return False
        work = self._gather()
        if work is None:
            return False
        self.metrics.waiting = "step"
        try:
            self.life.step(work)
        finally:
            for parcels in work.parcels.values():
                for parcel in parcels:
                    parcel.batch.hold.let_go()
        return True

    def _rest(self) -> None:
        self.life.rest()

    def _gather(self) -> Work | None:
        """Batches and slices for the next step; None if there is nothing to do."""
        again: Work | None = self.life.attempt(self.life.again)
        if again is not None:
            return again
        parcels: dict[ConnectionId, list[Parcel]] = {}
        with self.ends.signals.condition:
            for id, connection in self.ends.inputs.items():
                taken = connection.take(ROWS_PER_STEP) if self.life.takes(id) else []
                if taken:
                    parcels[id] = taken
        slices = self.life.attempt(self._next_slices) if self.life.may_read_sources else {}
        made = self.life.attempt(self._made) if self.worker.threaded else {}
        if not parcels and not slices and not made:
            return None
        self.exhausted = False
        return Work(slices or {}, parcels, made or {})

    def _next_slices(self) -> dict[OperatorName, Slice]:
        found = {run.name: run.next_slice() for run in self.worker.sources}
        return {name: piece for name, piece in found.items() if piece is not None}

    def _made(self) -> dict[OperatorName, list[pa.Table]]:
        return {run.name: run.take_outputs() for run in self.worker.threaded if run.pending}

    # --- what lives do with it ----------------------------------------------------------------------------------

    def run_step(self, work: Work) -> Outcome:
        """Process `work` and hand its output on."""
        begun = self.clock.monotonic()
        if self.worker.engine.before_step is not None:
            self.worker.engine.before_step(self.name, work)
        self.gauges.look()  # a long step must not hide what waits behind it
        outcome = self.worker.step(work, self.next_name())
        self.put_back(outcome)
        self.emit(outcome)
        now = self.clock.monotonic()
        size = sum(piece.bytes or 0 for piece in work.slices.values())
        self.metrics.step_done(now, now - begun, work.rows - outcome.rows_left, size)
        given = {str(name): piece.rows or 0 for name, piece in work.slices.items()}
        self.metrics.sources_gave(begun, now, given)
        count_later(self.worker, work, self.metrics, now)
        self.gauges.look()
        return outcome

    def next_name(self) -> StepName:
        if not self._step:
            self._left_out = left_out_of(self.worker.counts)
        self._step += 1
        return self.life.name_step(self._step)

    def put_back(self, outcome: Outcome) -> None:
        """What the step took and had no time for comes first in the next one."""
        for id, parcels in outcome.left.items():
            self.ends.inputs[id].put_first(parcels)

    def emit(self, outcome: Outcome) -> None:
        self.metrics.counts = self.worker.counts
        for sink, rows in outcome.sink_rows.items():
            self.metrics.add_sink_rows(sink, rows)
        for stream, batch in outcome.batches.items():
            for connection in self.plan.outputs:
                if connection.stream == stream:
                    batch.hold.take()
                    self.life.sends(connection.id, batch)
                    self.metrics.waiting = "space downstream"
                    self.ends.outputs[connection.id].put_batch(
                        batch, self.life.must_give_up, self.life.must_hurry
                    )
            batch.hold.let_go()

    def wait(self) -> None:
        """Rest until something changes."""
        self.gauges.look()
        with self.ends.signals.condition:
            if not (self.stopping or self._woken):
                self.metrics.waiting = self.life.waiting
                self.resting = True
                self.ends.signals.condition.wait(self._rest_s * (LONG_RESTS if self._inputs_wake_it else 1))
                self.resting = False
            self._woken = False  # a turn follows, so nothing is missed

    @property
    def _inputs_wake_it(self) -> bool:
        """Nothing but its inputs can give it something to do, and nothing came since they were looked at."""
        worker, inputs = self.worker, self.ends.inputs.values()
        if worker.sources or worker.threaded or worker.conditional or self.life.looks_around:
            return False
        return all(connection.empty and not connection.closed for connection in inputs)


def until_space(save: Callable[[], None], loop: ElementLoop, announce: Announce) -> None:
    """Save something in the store. A full disk stops the element until there is space again; it neither loses rows nor ends the run."""
    waited = False
    while True:
        try:
            save()
            return
        except NoSpaceError as error:
            if loop.stopping:
                raise Interrupted from error  # rows whose position is not saved must not be handed out
            if not waited:
                announce(ElementPaused(loop.name, str(error)))
            waited = True
            loop.metrics.waiting = "space in the store"
            time.sleep(SPACE_PROBE_S)


def left_out_of(counts: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], int]:
    """Rows that are told when there are more of them, by operator and kind, of what operators counted."""
    return {(name, what): of[what] for name, of in counts.items() for what in LEFT_OUT if what in of}
