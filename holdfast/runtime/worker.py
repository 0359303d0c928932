"""One element's work: a step evaluates its operators in order; between steps its state can be pinned and restored.

Called by one loop thread, except `upload`, which runs in the background over an immutable pin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.checkpoint.blobs import put_blobs
from holdfast.checkpoint.retention import entry_of
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.durable import checksum_file, remove_quietly
from holdfast.errors import MismatchError
from holdfast.failpoints import fp
from holdfast.ids import Attempt, ConnectionId, Epoch, OperatorName, RegionName
from holdfast.language.connectors import POSITION_FIELDS, Slice, Stamp
from holdfast.language.graph import (
    AggregateSpec,
    HostedSpec,
    Operator,
    SinkSpec,
    SourceSpec,
    SplitSpec,
    StreamRef,
)
from holdfast.runtime.batch import Batch
from holdfast.runtime.engine import Engine, Frame, KeyedTask, StepName
from holdfast.runtime.operators import HostedRun, KeyedRun, Remembering, SinkRun, SourceRun
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Work:
    """What one step processes."""

    slices: Mapping[OperatorName, Slice]
    batches: Mapping[ConnectionId, Sequence[Batch]]

    @property
    def rows(self) -> int:
        taken = sum(batch.rows for batches in self.batches.values() for batch in batches)
        return taken + sum(piece.rows or 0 for piece in self.slices.values())


@dataclass
class Outcome:
    """What one step produced: a batch per stream that leaves the element, and counts for people."""

    batches: dict[StreamRef, Batch] = field(default_factory=dict)
    sink_rows: dict[OperatorName, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pinned:
    """An element's state at an epoch, safe from later steps."""

    epoch: Epoch
    attempt: Attempt
    operators: Mapping[OperatorName, Any]
    kept: Mapping[ConnectionId, tuple[Batch, ...]]


class Worker:
    """Runs the operators of one element."""

    def __init__(self, plan: Plan, element: ElementPlan, engine: Engine) -> None:
        self.plan = plan
        self.element = element
        self._engine = engine
        self._by_stream = {c.stream: c for c in element.inputs}
        self._inside = {op.name for op in element.operators}
        self._out_streams = tuple(dict.fromkeys(c.stream for c in element.outputs))
        self._uses = _uses(element, self._out_streams)
        region = element.region or RegionName("autonomous")
        self.runs: dict[OperatorName, Remembering] = {}
        for op in element.operators:
            run = self._run_of(op, entry_of(region, op.name))
            if run is not None:
                self.runs[op.name] = run
        self.entries = {entry_of(region, name) for name in (element.name, *self.runs)}
        """Store entries this element writes to."""
        self.sources = [run for run in self.runs.values() if isinstance(run, SourceRun)]
        self.sinks = [run for run in self.runs.values() if isinstance(run, SinkRun)]
        self._hosted = [run for run in self.runs.values() if isinstance(run, HostedRun)]

    # --- a step -------------------------------------------------------------------------------------------------

    def step(self, work: Work, name: StepName) -> Outcome:
        """Process what `work` holds. If it raises, the element's state is worthless until restored."""
        self._engine.begin_step(name, self.plan.graph.name)
        fp("step.begin")
        evaluation = _Evaluation(self, work, name)
        try:
            for op in self.element.operators:
                evaluation.evaluate(op)
            outcome = evaluation.finish()
        except Exception as error:
            raise self._explained(work, error) from error
        finally:
            evaluation.release()
        fp("step.end")
        return outcome

    def _explained(self, work: Work, error: Exception) -> Exception:
        """A source may know what is wrong with the rows it gave: file and line of a malformed one."""
        for run in self.sources:
            piece = work.slices.get(run.name)
            explained = error if piece is None else run.source.explain_failure(piece, error)
            if explained is not error:
                return explained
        return error

    def drain(self, name: StepName) -> Outcome:
        """Let hosted operators submit what they hold back; their output goes through the element's other operators."""
        tables: dict[OperatorName, list[pa.Table]] = {}
        for run in self._hosted:
            fp("drain.op.flush")
            run.drain()
            tables[run.name] = run.take_outputs()
        if not any(table.num_rows for ports in tables.values() for table in ports):
            return Outcome()
        self._engine.begin_step(name, self.plan.graph.name)
        evaluation = _Evaluation(self, Work({}, {}), name)
        try:
            for op in self.element.operators:
                if op.name in tables:
                    evaluation.add_tables(op, tables[op.name])
                else:
                    evaluation.evaluate(op)
            return evaluation.finish()
        finally:
            evaluation.release()

    # --- epochs -------------------------------------------------------------------------------------------------

    def pin(self, epoch: Epoch, attempt: Attempt, kept: Mapping[ConnectionId, tuple[Batch, ...]]) -> Pinned:
        for batches in kept.values():
            for batch in batches:
                batch.hold.take()
        return Pinned(epoch, attempt, {name: run.pin(epoch) for name, run in self.runs.items()}, kept)

    def upload(self, pinned: Pinned, store: Store, region: RegionName) -> dict[str, Any]:
        """Make a pin durable; returns the element's part of the manifest."""
        try:
            return self._upload(pinned, store, region)
        finally:
            for batches in pinned.kept.values():
                for batch in batches:
                    batch.hold.let_go()

    def _upload(self, pinned: Pinned, store: Store, region: RegionName) -> dict[str, Any]:
        parts: dict[str, dict[str, Any]] = {}
        blobs: dict[str, bytes] = {}
        prefix = f"e{pinned.epoch}-a{pinned.attempt}"
        for name, run in self.runs.items():
            part = run.part_of(pinned.epoch, pinned.operators[name])
            parts[name] = {"blob": None, "segments": [[_as_list(r) for r in p] for p in part.segments]}
            if part.blob is not None:
                blobs[f"{prefix}-{name}"] = part.blob
        refs = put_blobs(store, entry_of(region, self.element.name), blobs)
        for operator, stored in parts.items():
            stored["blob"] = refs.get(f"{prefix}-{operator}")
        return {
            "epoch": pinned.epoch,
            "attempt": pinned.attempt,
            "operators": parts,
            "kept": self._upload_kept(pinned, store, region),
        }

    def _upload_kept(self, pinned: Pinned, store: Store, region: RegionName) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for connection, batches in pinned.kept.items():
            kept[connection] = []
            for batch in batches:
                files = []
                for file in batch.files:
                    key = f"e{pinned.epoch}-a{pinned.attempt}-{Path(file).name}"
                    crc, _ = checksum_file(file)
                    files.append(
                        _as_list(store.put_segment(entry_of(region, self.element.name), key, Path(file), crc))
                    )
                kept[connection].append({"rows": batch.rows, "files": files})
        return kept

    def restore(self, epoch: Epoch, parts: Mapping[str, dict[str, Any]] | None, store: Store | None) -> None:
        """Load the operators' parts of `epoch`; None: initial state."""
        for name, run in self.runs.items():
            if parts is not None and name not in parts:
                raise MismatchError(
                    f"epoch {epoch} holds no state of operator {name!r}.",
                    cure="Give the operator the name it had, or start with a new store.",
                )
            run.restore(epoch, None if parts is None else parts[name], store)

    def close(self) -> None:
        for run in self._hosted:
            run.close()

    # --- construction -------------------------------------------------------------------------------------------

    def _run_of(self, op: Operator, entry: str) -> Remembering | None:
        plan = self.plan
        match op.spec:
            case SourceSpec(source=source):
                stamped = StreamRef(op.name) in plan.stamped
                return SourceRun(op.name, source, Stamp(plan.source_index[op.name]) if stamped else None)
            case SinkSpec(sink=sink):
                return SinkRun(op.name, sink)
            case AggregateSpec() as spec:
                task = KeyedTask(
                    operator=op.name,
                    spec=spec,
                    input_schema=plan.schemas[op.inputs[0].streams[0]],
                    output_schema=plan.schemas[StreamRef(op.name)],
                    stamped=StreamRef(op.name) in plan.stamped or spec.emit == "each",
                    stamped_output=StreamRef(op.name) in plan.stamped,
                )
                return KeyedRun(op.name, task, self._engine, entry)
            case HostedSpec() as spec:
                stamped_ports = tuple(StreamRef(op.name, p) in plan.stamped for p in range(op.outputs))
                return HostedRun(op.name, spec, plan.source_index.get(op.name, 0), stamped_ports)
            case _:
                return None

    def schema_of(self, stream: StreamRef) -> pa.Schema:
        """Columns of a stream as it travels, with positions if stamped."""
        schema = self.plan.schemas[stream]
        if stream in self.plan.stamped:
            for position in POSITION_FIELDS:
                schema = schema.append(position)
        return schema


class _Evaluation:
    """One step under way: frames of the streams computed so far."""

    def __init__(self, worker: Worker, work: Work, name: StepName) -> None:
        self._worker = worker
        self._engine = worker._engine
        self._work = work
        self._name = name
        self._frames: dict[StreamRef, Frame] = {}
        self._shared: list[Frame] = []
        self._files: list[str] = []
        self._outcome = Outcome()

    def evaluate(self, op: Operator) -> None:
        match op.spec:
            case SourceSpec():
                self._read(op)
            case SinkSpec(sink=sink):
                frame = self._input(op, 0)
                if frame is not None:
                    fp("sink.write")
                    if any(stream in self._worker.plan.stamped for stream in op.inputs[0].streams):
                        frame = self._engine.strip(frame)
                    self._outcome.sink_rows[op.name] = self._engine.write(sink, frame, self._name.id)
            case AggregateSpec():
                self._keyed(op)
            case HostedSpec():
                self._hosted(op)
            case _:
                frame = self._input(op, 0)
                if frame is not None:
                    stamped = any(
                        StreamRef(op.name, p) in self._worker.plan.stamped for p in range(op.outputs)
                    )
                    for port, out in enumerate(self._engine.stateless(op, [frame], stamped)):
                        self._add(StreamRef(op.name, port), out)

    def _stateless(self, op: Operator, frame: Frame) -> None:
        outputs = [StreamRef(op.name, port) for port in range(op.outputs)]
        stamped = [stream in self._worker.plan.stamped for stream in outputs]
        # Asking a frame for its columns costs milliseconds on Spark: only where positions may be.
        carries = all(stream in self._worker.plan.stamped for stream in op.inputs[0].streams)
        for stream, out, keeps in zip(
            outputs, self._engine.stateless(op, [frame], any(stamped)), stamped, strict=True
        ):
            self._add(stream, self._engine.strip(out) if carries and not keeps else out)

    def finish(self) -> Outcome:
        for stream in self._worker._out_streams:
            frame = self._frames.get(stream)
            if frame is not None:
                batch = self._engine.materialise(frame, self._name, str(stream))
                if batch is not None:
                    self._outcome.batches[stream] = batch
        return self._outcome

    def release(self) -> None:
        for frame in self._shared:
            self._engine.unshare(frame)
        for file in self._files:
            remove_quietly(file)

    def add_tables(self, op: Operator, tables: Sequence[pa.Table]) -> None:
        for port, table in enumerate(tables):
            if table.num_rows:
                self._add(StreamRef(op.name, port), self._engine.from_table(table))

    def _read(self, op: Operator) -> None:
        piece = self._work.slices.get(op.name)
        if piece is None:
            return
        run = self._worker.runs[op.name]
        assert isinstance(run, SourceRun)
        self._add(StreamRef(op.name), self._engine.read(run.source, piece, run.stamp))

    def _keyed(self, op: Operator) -> None:
        frame = self._input(op, 0)
        if frame is None:
            return
        run = self._worker.runs[op.name]
        assert isinstance(run, KeyedRun)
        result = self._engine.keyed_step(run.task, run.state, frame, self._name)
        self._files.extend(result.files)
        run.advance(result.state)
        if result.rows:
            self._add(StreamRef(op.name), result.frame)

    def _hosted(self, op: Operator) -> None:
        run = self._worker.runs[op.name]
        assert isinstance(run, HostedRun)
        worked = False
        # Data ports before control ports: rows of a control port change state only.
        for port in sorted(range(len(op.inputs)), key=lambda p: op.inputs[p].control):
            frame = self._input(op, port)
            if frame is None:
                continue
            stream = op.inputs[port].streams[0]
            ordered = all(s in self._worker.plan.stamped for s in op.inputs[port].streams)
            table = self._engine.collect(frame, self._worker.plan.schemas[stream], ordered)
            if table.num_rows:
                run.process(table, port)
                worked = True
        if worked:
            run.check_state()
            self.add_tables(op, run.take_outputs())

    def _input(self, op: Operator, port: int) -> Frame | None:
        frames = [f for s in op.inputs[port].streams if (f := self._stream(s, op.name, port)) is not None]
        if not frames:
            return None
        stamped = [s in self._worker.plan.stamped for s in op.inputs[port].streams]
        if any(stamped) and not all(stamped):
            frames = [self._engine.strip(frame) for frame in frames]
        return frames[0] if len(frames) == 1 else self._engine.union(frames)

    def _stream(self, stream: StreamRef, op: OperatorName, port: int) -> Frame | None:
        if stream.operator in self._worker._inside and stream in self._frames:
            return self._frames[stream]
        for connection in self._worker.element.inputs:
            if connection.stream == stream and (op, port) in connection.ports:
                batches = self._work.batches.get(connection.id)
                if batches:
                    return self._engine.from_batches(batches, self._worker.schema_of(stream))
        return None

    def _add(self, stream: StreamRef, frame: Frame) -> None:
        if self._worker._uses.get(stream, 0) > 1:
            frame = self._engine.share(frame)
            self._shared.append(frame)
        self._frames[stream] = frame


def _uses(element: ElementPlan, out_streams: Sequence[StreamRef]) -> dict[StreamRef, int]:
    """How many jobs of one step read each stream made in the element."""
    uses: dict[StreamRef, int] = dict.fromkeys(out_streams, 1)
    for op in element.operators:
        for port in op.inputs:
            for stream in port.streams:
                weight = op.outputs if isinstance(op.spec, SplitSpec) else 1
                uses[stream] = uses.get(stream, 0) + weight
    return uses


def _as_list(ref: Any) -> list[Any]:
    return [ref.entry, ref.key, ref.size, ref.crc]
