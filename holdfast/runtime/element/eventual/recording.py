"""Steps of an operator that keeps its checkpoints in its output log: results and records of windows are appended at once.

The append is the step's commit: what is in the log has happened, and nothing else has. The version of the state advances only behind
it. So whatever fails, the log tells how the operator stood, and a restore asks nothing but the log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from holdfast.clock import Clock, Every
from holdfast.ids import OperatorName
from holdfast.language.connectors import Source
from holdfast.operators.aggregates.recording import WindowRecorder
from holdfast.operators.joins.recording import JoinRecorder
from holdfast.operators.shared.recorder import Recorder
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
from holdfast.state.eventual.joins import FoundJoin
from holdfast.state.eventual.records import Standing
from holdfast.state.eventual.scan import Restored

PIN_S = 5.0
"""How often retention is told what is needed no more."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A note in the log: its number and position, and where the sources stood before its step."""

    number: int
    position: int
    source: Any


Found = TypeVar("Found", bound=Restored | FoundJoin)
R = TypeVar("R", bound=Recorder[Any])


class Recording(ABC, Generic[R, Found]):
    """Of one operator. Called by the element's thread."""

    def __init__(
        self,
        task: KeyedTask,
        recorder: R,
        sink: LogSink,
        sources: Sequence[Source],
        engine: Engine,
        clock: Clock,
    ) -> None:
        self.task = task
        self.sink = sink
        self.recorder = recorder
        self.before: Any = None
        """Where the sources stand before the step that comes next, and behind it. Set before each step."""
        self.after: Any = None
        self._sources = sources
        self._engine = engine
        self._clock = clock
        self._places: deque[Noted] = deque()
        """Of notes that may be needed, oldest first."""
        self._kept = -1
        self._pins = Every(clock, PIN_S, at_once=False)
        self._ports = Delivery(kept=frozenset(range(len(task.logic.outputs))))

    @abstractmethod
    def stands(self) -> Any:
        """Where its sources are, as notes tell it."""

    @abstractmethod
    def needed_input(self) -> Sequence[Any] | None:
        """From where on each source is needed; None: not known."""

    @property
    def name(self) -> OperatorName:
        return self.task.operator

    def step(self, state: KeyedState, frames: Mapping[int, Frame], name: StepName) -> KeyedOutput:
        """Apply what arrived and append what came of it. If it raises, only the log knows whether the step has happened."""
        wall_us = int(self._clock.wall() * 1e6)
        asked = replace(state, meta=self.recorder.asking(state.meta, wall_us))
        made = self._engine.keyed_step(self.task, asked, frames, name, self._ports)
        results, *told = (self._collected(made, port) for port in range(len(self.task.logic.outputs)))
        stands = (
            Standing(self.before, self.recorder.to_store(state.meta)),
            Standing(self.after, made.state.meta),
        )
        has_results = bool(results.num_rows)
        notes = self.recorder.noted(told, has_results, stands, made.state.counts, wall_us)
        if notes:
            self._append(results, notes)
        return replace(made, frames={}, delivered=(self.sink,))

    def _collected(self, made: KeyedOutput, port: int) -> pa.Table:
        schema = self.task.logic.outputs[port]
        frame = made.frames.get(port)
        return schema.empty_table() if frame is None else self._engine.collect(frame, schema)

    def _append(self, results: pa.Table, notes: list[bytes]) -> None:
        position = self.sink.append_noted(results, notes)
        self._places.append(Noted(self.recorder.number, position, self.before))
        if self._pins.due():
            self.let_go()

    def let_go(self) -> None:
        """Notes that no scan would read, and rows of the input that no replay would, are needed no more."""
        needed = self.recorder.oldest_needed
        while len(self._places) > 1 and self._places[1].number <= needed:
            self._places.popleft()
        first = self._places[0] if self._places else None
        if first is not None and first.number <= needed and first.position > self._kept:
            self.sink.keep_from(first.position)
            self._kept = first.position
        for source, snapshot in zip(self._sources, self.needed_input() or (), strict=False):
            source.kept([snapshot], None)

    # --- restores ---

    def scan(self) -> Found | None:
        """What the log tells; None: it is new."""
        positions: list[int] = []
        found: Found | None = self.recorder.scan(self._read(positions))
        self.recorder.resume(found)
        read = () if found is None else found.notes
        self._places = deque(Noted(each.number, positions[each.at], each.source) for each in read)
        return found

    def _read(self, positions: list[int]) -> Iterator[bytes]:
        """What the log has, newest first; at which positions is added to those given."""
        for note in self.sink.take_notes():
            positions.append(note.position)
            yield note.payload

    def begin(self) -> None:
        """Nothing was ever written: note where the sources begin, so that another run begins there too."""
        self.sink.keep_from(0)
        self.before = self.stands()
        results = self.task.logic.outputs[0].empty_table()
        self._append(results, self.recorder.first(Standing(self.before)))


class WindowRecording(Recording[WindowRecorder, Restored]):
    """Of an aggregate, which has one source."""

    def stands(self) -> Any:
        return self._sources[0].snapshot()

    def needed_input(self) -> Sequence[Any] | None:
        replayed = self.recorder.oldest_replayed
        before = next((each for each in reversed(self._places) if each.number <= replayed), None)
        return None if before is None else [before.source]


class JoinRecording(Recording[JoinRecorder, FoundJoin]):
    """Of a window join: its sources are those of the left stream and of the right one."""

    def stands(self) -> Any:
        return [source.snapshot() for source in self._sources]

    def needed_input(self) -> Sequence[Any] | None:
        return self.recorder.held
