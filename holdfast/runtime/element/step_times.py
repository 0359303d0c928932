"""Event time in one step of an element: what is known of it beside the rows of each stream, and where it comes to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.compiler.timing import knows_time
from holdfast.ids import OperatorName
from holdfast.language.connectors import TIME_COLUMN, TIMES
from holdfast.language.graph import Operator, StreamRef
from holdfast.language.operators.event_time import EventTimeSpec, UsesTime
from holdfast.operators.kinds import kind_of
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.runtime.engines.engine import Frame
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.runs.operator_runs import CLOSING
from holdfast.state.windows.watermarks import CLOSED, is_closed

if TYPE_CHECKING:
    from holdfast.runtime.element.evaluation import Outcome, Work
    from holdfast.runtime.element.worker import Worker

LAST = np.iinfo(np.int64).max


class StepTimes:
    """Of one step. `frames` and `outcome` are those of its evaluation, which go on growing."""

    def __init__(
        self, worker: Worker, work: Work, frames: Mapping[StreamRef, Frame], outcome: Outcome
    ) -> None:
        self._worker = worker
        self._engine = worker.engine
        self._work = work
        self._frames = frames
        self._outcome = outcome
        self.marks: dict[StreamRef, pa.Table] = {}
        """How far event time has come in streams whose rows came in the order of time."""

    def note(self, op: Operator, logic: KeyedLogic, before: Any, after: Any) -> None:
        """Whose rows come in the order of time tells those behind it how far it has come, also if no row came."""
        stream, reached = StreamRef(op.name), logic.reached(after)
        if reached is None or reached == logic.reached(before) or not kind_of(op).stamps(op):
            return
        if stream in self._worker.plan.timed or is_closed(reached):
            self.marks[stream] = self._mark(op.name, reached, reached)

    def at_port(self, op: Operator, port: int) -> Frame | None:
        """The times beside the rows of a port, if it takes any."""
        if not isinstance(op.spec, UsesTime) or not op.spec.times():
            return None
        ends = [frame for stream in op.inputs[port].streams for frame in self._ends(stream)]
        return self._joined([*self._times_at(op, port), *ends])

    def at_end(self, op: Operator) -> list[pa.Table]:
        """The same of an end of the graph that hands time on, in the driver; without the end of time."""
        beside = self._joined(self._times_at(op, 0))
        return [] if beside is None else [self._engine.collect_times(beside)]

    def leaving(self, stream: StreamRef) -> Frame | None:
        """The times that leave the element beside the rows of a stream."""
        times = self._times_of(stream) if stream in self._worker.streams.timed else []
        return self._joined([*times, *self._ends(stream)])

    # --- how far it has come ---

    def _times_at(self, op: Operator, port: int) -> list[Frame]:
        takes = (op.name, port) in self._worker.plan.taking
        return [frame for s in op.inputs[port].streams for frame in self._times_of(s)] if takes else []

    def _times_of(self, stream: StreamRef) -> list[Frame]:
        """What is known about the time of a stream: where it begins, or before the operators that left rows out."""
        if stream.operator not in self._worker.streams.inside:
            return self._times_from_afar(stream)
        if stream in self.marks:
            return [self._engine.from_table(self.marks[stream])]
        producer = self._worker.plan.graph.operators[stream.operator]
        if isinstance(producer.spec, EventTimeSpec) and producer.spec.beside:
            return self._times_of_source(producer.inputs[0].streams[0].operator)
        if isinstance(producer.spec, EventTimeSpec):
            frame = self._frames.get(stream)
            return [] if frame is None else [self._engine.times(frame, producer.spec.on)]
        if knows_time(producer):
            return []
        return [frame for before in producer.inputs[0].streams for frame in self._times_of(before)]

    def _times_of_source(self, name: OperatorName) -> list[Frame]:
        """Times that a source has beside the rows that it gave."""
        piece = self._work.pieces.get(name)
        found = () if piece is None else self._worker.source(name).times_beside(piece)
        rows = [(self._worker.plan.source_index[name], *each) for each in found]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return [self._engine.from_table(pa.table(columns, schema=TIMES))] if rows else []

    def _times_from_afar(self, stream: StreamRef) -> list[Frame]:
        """Times that came along a connection."""
        return [self._engine.from_table(table) for table in self._engine.read_times(self.arrived(stream))]

    def arrived(self, stream: StreamRef) -> list[Batch]:
        """The batches of a stream from another element."""
        found = [c for c in self._worker.element.inputs if c.stream == stream]
        return [parcel.batch for c in found[:1] for parcel in self._work.parcels.get(c.id, ())]

    # --- where it comes to its end ---

    def _ends(self, stream: StreamRef) -> list[Frame]:
        """The end of event time, where a stream comes to it."""
        return [self._engine.from_table(table) for table in self._ending(stream)]

    def _ending(self, stream: StreamRef) -> list[pa.Table]:
        worker, name = self._worker, stream.operator
        if name not in worker.streams.inside:
            return self._ending_afar(stream)
        if stream in self.marks:
            mark = self.marks[stream].slice(self.marks[stream].num_rows - 1)
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
        tables = self._engine.read_times(self.arrived(stream))
        return [
            closed
            for table in tables
            if (closed := table.filter(pc.field(TIME_COLUMN) > CLOSED >> 1)).num_rows
        ]

    def _mark(self, origin: OperatorName, ordinal: int, time: int) -> pa.Table:
        """Time at the end of all rows with this ordinal."""
        place = (self._worker.plan.source_index[origin], ordinal, LAST, time)
        return pa.table([[value] for value in place], schema=TIMES)

    def _joined(self, frames: Sequence[Frame]) -> Frame | None:
        if not frames:
            return None
        return frames[0] if len(frames) == 1 else self._engine.union(frames)
