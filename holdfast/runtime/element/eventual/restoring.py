"""From what a log tells to an operator at work: the found state in live segments, rows replayed into it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH
from holdfast.language.graph import Operator
from holdfast.operators.aggregates.eventual import BEYOND, END, REPLAYED, End, Replay
from holdfast.operators.kinds import kind_of
from holdfast.operators.shared.logic import Segments
from holdfast.runtime.element.evaluation import Evaluation, Work
from holdfast.runtime.element.eventual.recording import Recording
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import STATE, KeyedState, KeyedTask, StepName
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import SourceRun
from holdfast.state.eventual.scan import Restored
from holdfast.state.keyed.segment import write_segment

NextName = Callable[[], StepName]


class Restore:
    """Of one operator, as often as it has to go back. Called by the element's thread."""

    def __init__(self, worker: Worker, recording: Recording, next_name: NextName) -> None:
        self._worker = worker
        self._recording = recording
        self._next_name = next_name
        self._op = next(op for op in worker.element.operators if op.name == recording.name)
        run = worker.runs[recording.name]
        assert isinstance(run, KeyedRun)
        self._run = run
        self.windows: int | None = None
        """How many the last restore found; None: the log was new. With it, what that cost: replayed rows are those that reached the
        operator."""
        self.bytes_read = 0
        self.rows_replayed = 0

    @property
    def _source(self) -> SourceRun:
        return self._worker.sources[0]

    def perform(self) -> None:
        """Operator and source stand where the newest note says; in a new log, at the beginning."""
        found = self._recording.scan()
        fp("eventual.scanned")
        self.bytes_read, self.rows_replayed = (0 if found is None else found.bytes), 0
        self.windows = None if found is None else found.newest.n_open
        self._run.restore(INITIAL_EPOCH, None, None)
        self._source.dry = False
        if found is None:
            self._source.go_to((None, False))
            self._recording.begin(self._source.source.snapshot())
            return
        state = KeyedState(self._worker.engine.bring(self._segments(found)))
        if found.start is not None:
            state = self._replayed(found, state)
        newest, logic = found.newest, self._run.task.logic
        kept = tuple(segments[1:] for segments in state.partitions)
        self._run.advance(KeyedState(kept, logic.resumed(newest.after.meta), dict(newest.counts)))
        self._source.go_to((newest.after.source, False))
        fp("eventual.replayed")

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
        end = End(found.newest.upto, found.newest.after.meta)
        state = KeyedState(state.partitions, {**(found.start.meta or {}), END: end.encode()})
        self._run.advance(state)
        self._source.go_to((found.start.source, False))
        source = self._source.source
        while not state.counts.get(BEYOND) and source.snapshot() != found.newest.after.source:
            piece = source.next_slice()
            if piece is None:
                break
            state = self._replay_step(Work({self._source.name: piece}), state)
            self._run.advance(state)
            source.processed(piece)
        self.rows_replayed = state.counts.get(REPLAYED, 0)
        return state

    def _replay_step(self, work: Work, state: KeyedState) -> KeyedState:
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
            task = KeyedTask(self._op.name, Replay(self._recording.logic))
            return engine.keyed_step(task, state, frames, name).state
        except BaseException:
            self._run.remove_leftovers(name)
            raise
        finally:
            replaying.release()


class Replaying(Evaluation):
    """A step up to the operator."""

    def evaluate(self, op: Operator) -> None:
        if kind_of(op).role != "sink":
            super().evaluate(op)
