"""One step of an element under way: its operators evaluated in order, from what was gathered to what leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.compiler.plan import ConnectionPlan
from holdfast.failpoints import fp
from holdfast.ids import ConnectionId, OperatorName
from holdfast.language.connectors import Slice
from holdfast.language.graph import InputPort, Operator, SinkSpec, StreamRef
from holdfast.language.hosted import Poison
from holdfast.operators.kinds import kind_of
from holdfast.operators.python.user_errors import naming_users
from holdfast.operators.shared.logic import times_at
from holdfast.runtime.element.element_streams import stamp_of
from holdfast.runtime.element.poison.poisoned_step import poison_of
from holdfast.runtime.element.poison.trials import KeyedStep, keyed_without, mapped_without
from holdfast.runtime.element.step_times import StepTimes
from holdfast.runtime.engines.engine import Frame, KeyedState, StepName
from holdfast.runtime.links.batch import Batch, Hold
from holdfast.runtime.links.connection import Parcel
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import CLOSING, SinkRun, SourceRun

if TYPE_CHECKING:
    from holdfast.runtime.element.worker import Worker

HOSTED_STEP_S = 0.2
"""About how long Python operators in the driver work in one step: nothing else happens to their element meanwhile."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one step processes."""

    slices: Mapping[OperatorName, Slice] = field(default_factory=dict)
    parcels: Mapping[ConnectionId, Sequence[Parcel]] = field(default_factory=dict)
    made: Mapping[OperatorName, Sequence[pa.Table]] = field(default_factory=dict)
    """What threads of operators have submitted, by output port."""

    @property
    def pieces(self) -> dict[OperatorName, Slice]:
        """The slices that have rows to be read."""
        return {name: piece for name, piece in self.slices.items() if piece is not CLOSING}

    @property
    def batch_rows(self) -> int:
        return sum(parcel.batch.rows for parcels in self.parcels.values() for parcel in parcels)

    @property
    def rows(self) -> int:
        """As far as they are known."""
        return self.batch_rows + sum(piece.rows or 0 for piece in self.slices.values()) + self.made_rows

    @property
    def made_rows(self) -> int:
        return sum(table.num_rows for tables in self.made.values() for table in tables)


@dataclass
class Outcome:
    """What one step produced: a batch per stream that leaves the element, counts for people, and what it took and had
    no time for."""

    batches: dict[StreamRef, Batch] = field(default_factory=dict)
    sink_rows: dict[OperatorName, int | None] = field(default_factory=dict)
    left: dict[ConnectionId, list[Parcel]] = field(default_factory=dict)

    @property
    def rows_left(self) -> int:
        return sum(parcel.batch.rows for parcels in self.left.values() for parcel in parcels)


class Evaluation:
    """One step under way: frames of the streams computed so far."""

    def __init__(self, worker: Worker, work: Work, name: StepName) -> None:
        self._worker = worker
        self._engine = worker.engine
        self._work = work
        self._name = name
        self._frames: dict[StreamRef, Frame] = {}
        self._shared: list[Frame] = []
        self._holds: list[Hold] = []
        self._outcome = Outcome()
        self._versions: list[tuple[KeyedRun, KeyedState]] = []
        self._times = StepTimes(worker, work, self._frames, self._outcome)
        self._deadline = time.monotonic() + HOSTED_STEP_S

    def evaluate(self, op: Operator) -> None:
        match kind_of(op).role:
            case "source":
                self._read(op)
            case "sink":
                self._write(op)
            case "keyed":
                self._keyed(op)
            case "hosted":
                self._hosted(op)
            case "stateless":
                self._stateless(op)

    def finish(self) -> Outcome:
        for stream in self._worker.streams.leaving:
            batch = self._materialised(stream)
            if batch is not None:
                self._outcome.batches[stream] = batch
        # All at once, at the end: a step that fails leaves every operator the version before it.
        for run, state in self._versions:
            run.advance(state)
        self._versions.clear()
        return self._outcome

    def _materialised(self, stream: StreamRef) -> Batch | None:
        frame, label = self._frames.get(stream), f"{stream.operator}.{stream.port}"
        near = stream in self._worker.streams.near
        batch = None if frame is None else self._engine.materialise(frame, self._name, label, near)
        times = self._times.leaving(stream)
        return batch if times is None else self._engine.with_times(batch, times, self._name, label)

    def release(self) -> None:
        for run, state in self._versions:
            run.discard(state)
        for frame in self._shared:
            self._engine.unshare(frame)
        for hold in self._holds:
            hold.let_go()

    def add_tables(self, op: Operator, tables: Sequence[pa.Table]) -> None:
        for port, table in enumerate(tables):
            if table.num_rows:
                self._add(StreamRef(op.name, port), self._engine.from_table(table))

    def _read(self, op: Operator) -> None:
        piece = self._work.pieces.get(op.name)
        if piece is None:
            return
        run = self._worker.runs[op.name]
        assert isinstance(run, SourceRun)
        self._add(StreamRef(op.name), self._engine.read(run.source, piece, run.stamp))
        malformed = StreamRef(op.name, 1)
        if self._worker.streams.uses.get(malformed):
            stamp = stamp_of(self._worker.plan, malformed)
            self._add(malformed, self._engine.read_malformed(run.source, piece, stamp))

    def _write(self, op: Operator) -> None:
        assert isinstance(op.spec, SinkSpec)
        run = self._worker.runs[op.name]
        assert isinstance(run, SinkRun)
        is_written = op.name in self._outcome.sink_rows
        if run.timed is not None:
            begin = run.timed.time_passes if is_written else run.timed.begin_step
            begin(self._times.at_end(op), int(self._worker.clock.wall() * 1e6))
        if is_written:
            return
        frame = self._input(op, 0)
        if frame is not None:
            self._write_rows(op, run, frame)
        if run.timed is not None:
            run.timed.end_step(self._name.id)

    def _write_rows(self, op: Operator, run: SinkRun, frame: Frame) -> None:
        assert isinstance(op.spec, SinkSpec)
        fp("sink.write")
        is_stamped = any(stream in self._worker.plan.stamped for stream in op.inputs[0].streams)
        if is_stamped and not op.spec.sink.wants_positions:
            frame = self._engine.strip(frame)
        letters: list[Frame] = []
        check = op.spec.sink.row_check() if op.spec.on_error == "stream" else None
        if check is not None:
            frame, bad, kept = self._engine.checked(frame, check, op.name)
            letters.append(bad)
            self._shared.extend(kept)
        run.refusals.begin()
        with naming_users(f"sink {op.name!r}"):
            self._outcome.sink_rows[op.name] = self._engine.write(op.spec.sink, frame, self._name.id)
        if (refused := run.refusals.take()).num_rows:
            letters.append(self._engine.from_table(refused))
        if letters:
            self._add(StreamRef(op.name), letters[0] if len(letters) == 1 else self._engine.union(letters))

    def _stateless(self, op: Operator) -> None:
        frame = self._input(op, 0)
        if frame is None:
            return
        if (poison := poison_of(op)) is not None:
            self._map_apart(op, poison, frame)
            return
        stamped = any(StreamRef(op.name, port) in self._worker.plan.stamped for port in range(op.outputs))
        for port, out in enumerate(self._engine.stateless(op, [frame], stamped)):
            self._add(StreamRef(op.name, port), out)

    def _map_apart(self, op: Operator, poison: Poison, frame: Frame) -> None:
        """A function whose rows may end the process it runs in."""
        batch, letters = mapped_without(self._worker, op, poison, frame, self._name)
        if batch is not None:
            self._holds.append(batch.hold)
            stream = StreamRef(op.name)
            self._add(stream, self._engine.from_batches([batch], self._worker.plan.schemas[stream]))
        if letters is not None:
            self._add(StreamRef(op.name, op.outputs - 1), self._engine.from_table(letters))

    def arriving(self, op: Operator) -> dict[int, Frame]:
        """What the step has for a keyed operator, by input port; under `times_at(port)` the times beside a port's rows."""
        found = {port: self._input(op, port) for port in range(len(op.inputs))}
        found.update({times_at(port): self._times.at_port(op, port) for port in range(len(op.inputs))})
        return {port: frame for port, frame in found.items() if frame is not None}

    def _keyed(self, op: Operator) -> None:
        frames = self.arriving(op)
        if not frames:
            return
        run = self._worker.runs[op.name]
        assert isinstance(run, KeyedRun)
        delivery = self._worker.streams.deliveries[op.name]
        # One moment for the whole step, stored with the state: what is in processing time is consistent in itself.
        now_us = int(self._worker.clock.wall() * 1e6)
        state = replace(run.state, meta=run.task.logic.at(run.state.meta, now_us))
        step = KeyedStep(run, state, frames, self._name, delivery.request)
        if (recording := self._worker.recordings.get(op.name)) is not None:
            result = recording.step(state, frames, self._name)
        elif (poison := poison_of(op)) is None:
            result = step.perform(self._engine)
        else:
            result = keyed_without(self._worker, op, poison, step)
        self._holds.extend(result.holds)
        self._versions.append((run, result.state))
        self._times.note(op, run.task.logic, state.meta, result.state.meta)
        for sink in result.delivered:
            self._outcome.sink_rows[delivery.names[sink]] = result.rows
        for port, out in result.frames.items():
            self._add(StreamRef(op.name, port), out)

    def _hosted(self, op: Operator) -> None:
        run = self._worker.runs[op.name]
        assert isinstance(run, HostedRun)
        worked = 0
        if run.clock is not None:
            run.clock.begin(int(self._worker.clock.wall() * 1e6))
        # Data ports before control ports: rows of a control port change state only.
        for port in sorted(range(len(op.inputs)), key=lambda p: op.inputs[p].control):
            for connection in self._worker.element.inputs:
                if (op.name, port) in connection.ports:
                    worked += self._process(run, op, port, connection)
        made = self._work.made.get(op.name)
        if worked or made:
            run.check_state()
        if worked or made or run.clock is not None:
            own = run.take_outputs() if worked or run.clock is not None else None
            parts = [tables for tables in (made, own) if tables]
            self.add_tables(op, [pa.concat_tables(port) for port in zip(*parts, strict=True)])
            self._times.marks.update({StreamRef(op.name, port): at for port, at in run.take_times().items()})

    def _process(self, run: HostedRun, op: Operator, port: int, connection: ConnectionPlan) -> int:
        """Hand what came along a connection to a Python operator, as far as there is time; returns its rows."""
        parcels = self._work.parcels.get(connection.id, ())
        is_alone = len(connection.ports) == 1  # else all its readers must come equally far
        hurries = self._worker.hurries and is_alone and not op.inputs[port].control
        deadline = self._deadline if hurries else None
        worked = 0
        for number, parcel in enumerate(parcels):
            done = 0
            if deadline is None or not worked or time.monotonic() < deadline or not parcel.batch.rows:
                table = self._rows_of(parcel.batch, connection.stream, op.inputs[port])
                ahead = run.time_passes(port, table, self._engine.read_times([parcel.batch]))
                rows = table.select(self._worker.plan.schemas[connection.stream].names)
                rises = {} if ahead is None else ahead.rises
                done = run.process(rows, port, op.inputs[port].control, deadline, rises)
                run.time_passed(ahead, done)
            worked += done
            if done < parcel.batch.rows:
                self._outcome.left[connection.id] = [p.rest(0) for p in parcels[number + 1 :]]
                self._outcome.left[connection.id].insert(0, parcel.rest(done))
                break
        return worked

    def _rows_of(self, batch: Batch, stream: StreamRef, port: InputPort) -> pa.Table:
        ordered = all(s in self._worker.plan.stamped for s in port.streams)
        return self._worker.read_batch(batch, stream, ordered).slice(batch.skip)

    def _input(self, op: Operator, port: int) -> Frame | None:
        frames = [f for s in op.inputs[port].streams if (f := self._stream(s, op.name, port)) is not None]
        if not frames:
            return None
        stamped = [s in self._worker.plan.stamped for s in op.inputs[port].streams]
        if any(stamped) and not all(stamped):
            frames = [self._engine.strip(frame) for frame in frames]
        return frames[0] if len(frames) == 1 else self._engine.union(frames)

    def _stream(self, stream: StreamRef, op: OperatorName, port: int) -> Frame | None:
        if stream.operator in self._worker.streams.inside and stream in self._frames:
            return self._frames[stream]
        for connection in self._worker.element.inputs:
            if connection.stream == stream and (op, port) in connection.ports:
                parcels = self._work.parcels.get(connection.id)
                batches = [parcel.batch for parcel in parcels or () if parcel.batch.row_files]
                if batches:
                    return self._engine.from_batches(batches, self._worker.streams.schema_of(stream))
        return None

    def _add(self, stream: StreamRef, frame: Frame) -> None:
        if self._worker.streams.uses.get(stream, 0) > 1:
            frame = self._engine.share(frame)
            self._shared.append(frame)
        self._frames[stream] = frame
