"""One step of an element under way: its operators evaluated in order, from what was gathered to what leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.compiler.plan import ConnectionPlan
from holdfast.compiler.timing import knows_time
from holdfast.failpoints import fp
from holdfast.ids import ConnectionId, OperatorName
from holdfast.language.connectors import TIME_COLUMN, TIMES, Slice
from holdfast.language.graph import InputPort, Operator, SinkSpec, StreamRef
from holdfast.language.operators.event_time import EventTimeSpec, UsesTime
from holdfast.language.poison import Poison
from holdfast.operators.kinds import kind_of
from holdfast.operators.python.user_errors import naming_users
from holdfast.operators.shared.logic import KeyedLogic, times_at
from holdfast.runtime.element.poisoned_step import poison_of
from holdfast.runtime.element.trials import keyed_without, mapped_without
from holdfast.runtime.engines.engine import Frame, KeyedState, StepName
from holdfast.runtime.links.batch import Batch, Hold
from holdfast.runtime.links.connection import Parcel
from holdfast.runtime.runs.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import CLOSING, SinkRun, SourceRun
from holdfast.state.windows.watermarks import CLOSED, is_closed

if TYPE_CHECKING:
    from holdfast.runtime.element.worker import Worker

LAST = np.iinfo(np.int64).max

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
        self._marks: dict[StreamRef, pa.Table] = {}
        """How far event time has come in streams whose rows came in the order of time."""
        self._shared: list[Frame] = []
        self._holds: list[Hold] = []
        self._outcome = Outcome()
        self._versions: list[tuple[KeyedRun, KeyedState]] = []
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
        for stream in self._worker.out_streams:
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
        batch = None if frame is None else self._engine.materialise(frame, self._name, label)
        told = self._told(stream) if stream in self._worker.timed_outputs else []
        times = self._joined([*told, *self._ends(stream)])
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
        if self._worker.uses.get(malformed):
            stamp = self._worker.stamp_of(malformed)
            self._add(malformed, self._engine.read_malformed(run.source, piece, stamp))

    def _write(self, op: Operator) -> None:
        assert isinstance(op.spec, SinkSpec)
        frame = self._input(op, 0)
        if frame is None or op.name in self._outcome.sink_rows:
            return
        fp("sink.write")
        is_stamped = any(stream in self._worker.plan.stamped for stream in op.inputs[0].streams)
        if is_stamped and not op.spec.sink.wants_positions:
            frame = self._engine.strip(frame)
        run = self._worker.runs[op.name]
        assert isinstance(run, SinkRun)
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
        found.update({times_at(port): self._times(op, port) for port in range(len(op.inputs))})
        return {port: frame for port, frame in found.items() if frame is not None}

    def _keyed(self, op: Operator) -> None:
        frames = self.arriving(op)
        if not frames:
            return
        run = self._worker.runs[op.name]
        assert isinstance(run, KeyedRun)
        delivery = self._worker.deliveries[op.name]
        # One moment for the whole step, stored with the state: what is in processing time is consistent in itself.
        now_us = int(self._worker.clock.wall() * 1e6)
        state = replace(run.state, meta=run.task.logic.at(run.state.meta, now_us))
        if (recording := self._worker.recordings.get(op.name)) is not None:
            result = recording.step(state, frames, self._name)
        elif (poison := poison_of(op)) is None:
            result = self._engine.keyed_step(run.task, state, frames, self._name, delivery.request)
        else:
            about = (self._worker, op, poison, run, state, frames, self._name)
            result = keyed_without(*about, delivery.request)
        self._holds.extend(result.holds)
        self._versions.append((run, result.state))
        self._note_time(op, run.task.logic, state.meta, result.state.meta)
        for sink in result.delivered:
            self._outcome.sink_rows[delivery.names[sink]] = result.rows
        for port, out in result.frames.items():
            self._add(StreamRef(op.name, port), out)

    def _note_time(self, op: Operator, logic: KeyedLogic, before: Any, after: Any) -> None:
        """Whose rows come in the order of time tells those behind it how far it has come, also if no row came."""
        stream, reached = StreamRef(op.name), logic.reached(after)
        if reached is None or reached == logic.reached(before) or not kind_of(op).stamps(op):
            return
        if stream in self._worker.plan.timed or is_closed(reached):
            self._marks[stream] = self._mark(op.name, reached, reached)

    def _mark(self, origin: OperatorName, ordinal: int, time: int) -> pa.Table:
        """Time at the end of all rows with this ordinal."""
        place = (self._worker.plan.source_index[origin], ordinal, np.iinfo(np.int64).max, time)
        return pa.table([[value] for value in place], schema=TIMES)

    def _times(self, op: Operator, port: int) -> Frame | None:
        """The times beside the rows of a port, if it takes any."""
        if not isinstance(op.spec, UsesTime) or not op.spec.times():
            return None
        takes, streams = (op.name, port) in self._worker.plan.taking, op.inputs[port].streams
        told = [frame for stream in streams for frame in self._told(stream)] if takes else []
        return self._joined([*told, *(frame for stream in streams for frame in self._ends(stream))])

    def _ends(self, stream: StreamRef) -> list[Frame]:
        """The end of event time, where a stream comes to it."""
        return [self._engine.from_table(table) for table in self._ending(stream)]

    def _ending(self, stream: StreamRef) -> list[pa.Table]:
        worker, name = self._worker, stream.operator
        if name not in worker.inside:
            return self._ending_afar(stream)
        if stream in self._marks:
            mark = self._marks[stream].slice(self._marks[stream].num_rows - 1)
            return [mark] if is_closed(mark.column(TIME_COLUMN)[0].as_py()) else []
        if name in worker.plan.clocked:
            return []  # it tells its time itself
        producer, kind = worker.plan.graph.operators[name], kind_of(worker.plan.graph.operators[name])
        if kind.role == "source":
            return [self._mark(name, LAST, CLOSED)] if self._work.slices.get(name) is CLOSING else []
        if kind.role == "hosted" and not self._outcome.left:
            ends = [
                self._ending(before)
                for port in producer.inputs
                for before in port.streams
                if not port.control
            ]
            return [self._mark(name, LAST, CLOSED)] if ends and all(ends) else []
        if not kind.carries(producer):
            return []
        return [table for before in producer.inputs[0].streams for table in self._ending(before)]

    def _ending_afar(self, stream: StreamRef) -> list[pa.Table]:
        tables = self._engine.read_times(self._arrived(stream))
        return [
            closed
            for table in tables
            if (closed := table.filter(pc.field(TIME_COLUMN) > CLOSED >> 1)).num_rows
        ]

    def _joined(self, frames: Sequence[Frame]) -> Frame | None:
        if not frames:
            return None
        return frames[0] if len(frames) == 1 else self._engine.union(frames)

    def _told(self, stream: StreamRef) -> list[Frame]:
        """What is known about the time of a stream: where it begins, or before the operators that left rows out."""
        if stream.operator not in self._worker.inside:
            return self._told_from_afar(stream)
        if stream in self._marks:
            return [self._engine.from_table(self._marks[stream])]
        producer = self._worker.plan.graph.operators[stream.operator]
        if isinstance(producer.spec, EventTimeSpec):
            frame = self._frames.get(stream)
            return [] if frame is None else [self._engine.times(frame, producer.spec.on)]
        if knows_time(producer):
            return []
        return [frame for before in producer.inputs[0].streams for frame in self._told(before)]

    def _told_from_afar(self, stream: StreamRef) -> list[Frame]:
        """Times that came along a connection."""
        return [self._engine.from_table(table) for table in self._engine.read_times(self._arrived(stream))]

    def _arrived(self, stream: StreamRef) -> list[Batch]:
        """The batches of a stream from another element."""
        found = [c for c in self._worker.element.inputs if c.stream == stream]
        return [parcel.batch for c in found[:1] for parcel in self._work.parcels.get(c.id, ())]

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
            self._marks.update({StreamRef(op.name, port): at for port, at in run.take_times().items()})

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
        if stream.operator in self._worker.inside and stream in self._frames:
            return self._frames[stream]
        for connection in self._worker.element.inputs:
            if connection.stream == stream and (op, port) in connection.ports:
                parcels = self._work.parcels.get(connection.id)
                batches = [parcel.batch for parcel in parcels or () if parcel.batch.row_files]
                if batches:
                    return self._engine.from_batches(batches, self._worker.schema_of(stream))
        return None

    def _add(self, stream: StreamRef, frame: Frame) -> None:
        if self._worker.uses.get(stream, 0) > 1:
            frame = self._engine.share(frame)
            self._shared.append(frame)
        self._frames[stream] = frame
