"""From what a log tells to an operator at work: its windows are put together, and it goes on behind the newest note."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic

from holdfast.compiler.eventual import sources_behind
from holdfast.errors import InputError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH
from holdfast.language.graph import Operator
from holdfast.operators.aggregates.eventual import BEYOND, END, REPLAYED, End, Replay
from holdfast.operators.joins.eventual import ROWS, UNTIL, Entering, rows_of
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.operators.kinds import kind_of
from holdfast.operators.shared.logic import KeyedLogic, Segments
from holdfast.runtime.element.evaluation import Evaluation, Work
from holdfast.runtime.element.eventual.recording import Found, Recording
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import STATE, KeyedState, KeyedTask, StepName
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import SourceRun
from holdfast.state.eventual.joins import FoundJoin
from holdfast.state.eventual.records import JoinWindow, Note
from holdfast.state.eventual.scan import Restored
from holdfast.state.keyed.segment import write_segment

NextName = Callable[[], StepName]


class Restore(ABC, Generic[Found]):
    """Of one operator, as often as it has to go back. Called by the element's thread."""

    def __init__(self, worker: Worker, recording: Recording[Any, Found], next_name: NextName) -> None:
        self._worker = worker
        self._recording = recording
        self._next_name = next_name
        self._op = next(op for op in worker.element.operators if op.name == recording.name)
        run = worker.runs[recording.name]
        assert isinstance(run, KeyedRun)
        self._run = run
        self._sources = sources_of(worker, self._op)
        self.windows: int | None = None
        """How many the last restore found; None: the log was new. With it, what that cost: replayed rows are those that reached the
        operator."""
        self.bytes_read = 0
        self.rows_replayed = 0

    def perform(self) -> None:
        """Operator and sources stand where the newest note says; in a new log, at the beginning."""
        found = self._recording.scan()
        fp("eventual.scanned")
        self.bytes_read, self.rows_replayed = (0 if found is None else found.bytes), 0
        self.windows = None if found is None else found.newest.n_open
        self._run.restore(INITIAL_EPOCH, None, None)
        for source in self._sources:
            source.dry = False
        if found is None:
            for source in self._sources:
                source.go_to((None, False))
            self._recording.begin()
            return
        newest, logic = found.newest, self._run.task.logic
        partitions = self._rebuilt(found)
        self._run.advance(KeyedState(partitions, logic.resumed(newest.after.meta), dict(newest.counts)))
        for source, snapshot in zip(self._sources, self._snapshots(newest), strict=True):
            source.go_to((snapshot, False))
        fp("eventual.replayed")

    @abstractmethod
    def _rebuilt(self, found: Found) -> tuple[Segments, ...]:
        """The state as of the newest note."""

    @abstractmethod
    def _snapshots(self, newest: Note) -> Sequence[Any]:
        """Of the sources, behind the newest note."""

    def _replay_step(self, work: Work, state: KeyedState, logic: KeyedLogic) -> KeyedState:
        name = self._next_name()
        engine = self._worker.engine
        engine.begin_step(name, self._worker.plan.graph.name)
        replaying = Replaying(self._worker, work, name)
        try:
            for op in self._worker.element.operators:
                if op.name == self._op.name:
                    break
                replaying.evaluate(op)
            frames = replaying.arriving(self._op)
            if not frames:
                return state
            return engine.keyed_step(KeyedTask(self._op.name, logic), state, frames, name).state
        except BaseException:
            self._run.remove_leftovers(name)
            raise
        finally:
            replaying.release()


class WindowRestore(Restore[Restored]):
    """Of an aggregate: the found state in live segments, rows replayed into it."""

    def _snapshots(self, newest: Note) -> Sequence[Any]:
        return [newest.after.source]

    def _rebuilt(self, found: Restored) -> tuple[Segments, ...]:
        state = KeyedState(self._worker.engine.bring(self._segments(found)))
        if found.start is not None:
            state = self._replayed(found, state)
        return tuple(segments[1:] for segments in state.partitions)

    def _segments(self, found: Restored) -> tuple[Segments, ...]:
        """What was found, in live segments: first which window takes which rows, then the state."""
        directory, partitions = self._worker.engine.live / STATE, self._worker.engine.partitions
        directory.mkdir(parents=True, exist_ok=True)
        made, own = [], uuid.uuid4().hex[:12]
        for partition in range(partitions):
            state, windows = self._recording.recorder.dealt_out(found, partition, partitions)
            named = f"{self._op.name[:40]}-p{partition}-{own}"
            segments = [write_segment(directory, f"taking-{named}", windows)]
            segments += [write_segment(directory, f"scanned-{named}", state)] if state.num_rows else []
            made.append(tuple(segments))
        return tuple(made)

    def _replayed(self, found: Restored, state: KeyedState) -> KeyedState:
        """The state with the rows that windows lack. Rows behind the newest note are none of them."""
        assert found.start is not None
        end, replay = End(found.newest.upto, found.newest.after.meta), Replay(self._recording.recorder.logic)
        (run,) = self._sources
        state = KeyedState(state.partitions, {**(found.start.meta or {}), END: end.encode()})
        self._run.advance(state)
        run.go_to((found.start.source, False))
        source = run.source
        while not state.counts.get(BEYOND) and source.snapshot() != found.newest.after.source:
            piece = source.next_slice()
            if piece is None:
                break
            state = self._replay_step(Work({run.name: piece}), state, replay)
            self._run.advance(state)
            source.processed(piece)
        self.rows_replayed = state.counts.get(REPLAYED, 0)
        return state


class JoinRestore(Restore[FoundJoin]):
    """Of a window join: each window is filled from its own stream, whatever met whom before."""

    def _snapshots(self, newest: Note) -> Sequence[Any]:
        return list(newest.after.source)

    def _rebuilt(self, found: FoundJoin) -> tuple[Segments, ...]:
        join = self._run.task.logic
        assert isinstance(join, WindowJoin)
        until = rows_of(found.newest.after.meta)
        state = KeyedState(self._run.state.partitions)
        for side, (window, _, _) in sorted(found.windows.items()):
            had = tuple(window.rows if of == side else 0 for of in (0, 1))
            state = replace(state, meta={ROWS: list(had), UNTIL: list(until)})
            state = self._filled(side, window, state, Entering(join))
            self.rows_replayed += state.meta[ROWS][side] - window.rows
        return state.partitions

    def _filled(self, side: int, window: JoinWindow, state: KeyedState, logic: Entering) -> KeyedState:
        run, until = self._sources[side], state.meta[UNTIL][side]
        run.go_to((window.source, False))
        while state.meta[ROWS][side] < until:
            piece = run.source.next_slice()
            if piece is None:
                raise InputError(
                    f"source {run.name!r} gave {state.meta[ROWS][side]} rows again, and {until} have come from it before.",
                    cure="Bring back the rows that are missing: a window of the join has to be filled with them.",
                )
            state = self._replay_step(Work({run.name: piece}), state, logic)
            self._run.advance(state)
            run.source.processed(piece)
        return state


class Replaying(Evaluation):
    """A step up to the operator."""

    def evaluate(self, op: Operator) -> None:
        if kind_of(op).role != "sink":
            super().evaluate(op)


def sources_of(worker: Worker, op: Operator) -> list[SourceRun]:
    """One for each input port of the operator, as the compiler has seen to."""
    by_name = {run.name: run for run in worker.sources}
    return [by_name[name] for port in op.inputs for name in sources_behind(worker.element, port)]
