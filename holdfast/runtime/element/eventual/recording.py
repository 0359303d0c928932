"""Steps of an operator that keeps its checkpoints in its output log: results and records of windows are appended at once.

The append is the step's commit: what is in the log has happened, and nothing else has. The version of the state advances only behind
it. So whatever fails, the log tells how the operator stood, and a restore asks nothing but the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from holdfast.clock import Clock, Every
from holdfast.ids import OperatorName
from holdfast.language.checkpoint_form import Eventual
from holdfast.language.connectors import Source
from holdfast.operators.aggregates.eventual import CHECKS, MARKS, RESULTS, TellingLogic
from holdfast.operators.aggregates.recording import Recorder
from holdfast.runtime.engines.engine import (
    Delivery,
    Engine,
    Frame,
    KeyedOutput,
    KeyedState,
    KeyedTask,
    StepName,
)
from holdfast.sinks.log_sink import LogSink
from holdfast.state.eventual.books import Pace
from holdfast.state.eventual.records import Standing
from holdfast.state.eventual.scan import Restored

ALL_PORTS = Delivery(kept=frozenset({RESULTS, MARKS, CHECKS}))
PIN_S = 5.0
"""How often retention is told what is needed no more."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A note in the log: its number and position, and the source's snapshot before its step."""

    number: int
    position: int
    source: Any


def recorder_of(task: KeyedTask, form: Eventual, made: str) -> Recorder:
    """What makes its notes. `made`: what the operator is made of, as the log remembers it."""
    assert isinstance(task.logic, TellingLogic)
    return Recorder(task.logic, pace_of(form), made)


class Recording:
    """Of one operator. Called by the element's thread."""

    def __init__(
        self,
        task: KeyedTask,
        recorder: Recorder,
        sink: LogSink,
        source: Source,
        engine: Engine,
        clock: Clock,
    ) -> None:
        self.task = task
        self.logic = recorder.logic
        self.sink = sink
        self.recorder = recorder
        self.before: Any = None
        """The source's snapshot before the step that comes next, and behind it. Set before each step."""
        self.after: Any = None
        self._source = source
        self._engine = engine
        self._clock = clock
        self._places: deque[Noted] = deque()
        """Of notes that may be needed, oldest first."""
        self._kept = -1
        self._pins = Every(clock, PIN_S, at_once=False)

    @property
    def name(self) -> OperatorName:
        return self.task.operator

    def step(self, state: KeyedState, frames: Mapping[int, Frame], name: StepName) -> KeyedOutput:
        """Apply what arrived and append what came of it. If it raises, only the log knows whether the step has happened."""
        wall_us = int(self._clock.wall() * 1e6)
        asked = replace(state, meta=self.recorder.asking(state.meta, wall_us))
        made = self._engine.keyed_step(self.task, asked, frames, name, ALL_PORTS)
        results, marks, checks = (self._collected(made, port) for port in (RESULTS, MARKS, CHECKS))
        stands = (
            Standing(self.before, self.logic.to_store(state.meta)),
            Standing(self.after, made.state.meta),
        )
        has_results = bool(results.num_rows)
        notes = self.recorder.noted(marks, checks, has_results, stands, made.state.counts, wall_us)
        if notes:
            self._append(results, notes)
        return replace(made, frames={}, delivered=(self.sink,))

    def _collected(self, made: KeyedOutput, port: int) -> pa.Table:
        schema = self.logic.outputs[port]
        frame = made.frames.get(port)
        return schema.empty_table() if frame is None else self._engine.collect(frame, schema)

    def _append(self, results: pa.Table, notes: list[bytes]) -> None:
        position = self.sink.append_noted(results, notes)
        self._places.append(Noted(self.recorder.number, position, self.before))
        if self._pins.due():
            self.let_go()

    def let_go(self) -> None:
        """Notes that no scan would read, and rows of the input that no replay would, are needed no more."""
        needed, replayed = self.recorder.oldest_needed, self.recorder.oldest_replayed
        while len(self._places) > 1 and self._places[1].number <= needed:
            self._places.popleft()
        first = self._places[0] if self._places else None
        if first is not None and first.number <= needed and first.position > self._kept:
            self.sink.keep_from(first.position)
            self._kept = first.position
        before = next((each for each in reversed(self._places) if each.number <= replayed), None)
        if before is not None:
            self._source.kept([before.source], None)

    # --- restores ---

    def scan(self) -> Restored | None:
        """What the log tells; None: it is new."""
        positions: list[int] = []
        found = self.recorder.scan(self._read(positions))
        self.recorder.resume(found)
        read = () if found is None else found.notes
        self._places = deque(Noted(each.number, positions[each.at], each.source) for each in read)
        return found

    def _read(self, positions: list[int]) -> Iterator[bytes]:
        """What the log has, newest first; at which positions is added to those given."""
        for note in self.sink.take_notes():
            positions.append(note.position)
            yield note.payload

    def begin(self, snapshot: Any) -> None:
        """Nothing was ever written: note where the source begins, so that another run begins there too."""
        self.sink.keep_from(0)
        self.before = snapshot
        empty = [schema.empty_table() for schema in self.logic.outputs]
        self._append(empty[RESULTS], self.recorder.first(Standing(snapshot)))


def pace_of(form: Eventual) -> Pace:
    """In microseconds."""
    every = None if form.every_s is None else max(1, round(form.every_s * 1e6))
    return Pace(every, round(form.slow_after_s * 1e6), form.shots)
