"""One element's work: a step evaluates its operators in order; between steps its state can be pinned and restored.

Called by one loop thread, except `upload`, which runs in the background over an immutable pin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.checkpoint import own_records
from holdfast.checkpoint.parts import ElementPart, Kept, KeptBatch, OperatorPart
from holdfast.checkpoint.read_ahead import ReadAhead, SeenPairs, keys_of
from holdfast.checkpoint.stored_names import batch_key, entry_of, state_key
from holdfast.clock import Clock
from holdfast.compiler.compile import clock_of, logic_of
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.durable import checksum_file
from holdfast.errors import MismatchError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Attempt, ConnectionId, Epoch, OperatorName, RegionName
from holdfast.language.checkpoint_form import INCREMENTAL
from holdfast.language.connectors import POSITION_FIELDS, Source, Stamp
from holdfast.language.graph import (
    HostedSpec,
    Operator,
    SinkSpec,
    SourceSpec,
    StreamRef,
)
from holdfast.operators.kinds import kind_of
from holdfast.runtime.element.borders import BorderNumbers
from holdfast.runtime.element.deliveries import delivery_of, near_outputs, uses_of
from holdfast.runtime.element.evaluation import Evaluation, Outcome, Work
from holdfast.runtime.element.eventual.recording import Recording
from holdfast.runtime.element.poison.poisoned_step import poison_of
from holdfast.runtime.engines.engine import Engine, KeyedTask, StepName
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.persisted.connectors import PersistSink
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_context import place_of
from holdfast.runtime.runs.operator_runs import Prepared, Remembering, SinkRun, SourceRun, store_values
from holdfast.runtime.runs.own_threads import ThreadedRun
from holdfast.runtime.runs.variable_chain import limits_of
from holdfast.runtime.worker_errors import from_worker
from holdfast.store.base import SegmentRef, Store

Batches = Mapping[ConnectionId, tuple[Batch, ...]]


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """What a restored element sends again first, and what it is given back before all else."""

    kept: Batches = field(default_factory=dict)
    captured: Batches = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pinned:
    """An element's state at an epoch, safe from later steps."""

    epoch: Epoch
    attempt: Attempt
    operators: Mapping[OperatorName, Any]
    kept: Batches
    captured: Batches
    borders: BorderNumbers

    @property
    def batches(self) -> Iterator[Batch]:
        for batches in (*self.kept.values(), *self.captured.values()):
            yield from batches


class Worker:
    """Runs the operators of one element."""

    def __init__(
        self,
        plan: Plan,
        element: ElementPlan,
        engine: Engine,
        clock: Clock,
        budget: RestoreBudget | None = None,
    ) -> None:
        self._budget = budget or RestoreBudget()
        self.hurries = True
        """Steps of Python operators end after some time, also in the middle of a batch."""
        self.plan = plan
        self.element = element
        self.engine = engine
        self.clock = clock
        self.inside = {op.name for op in element.operators}
        self.out_streams = tuple(dict.fromkeys(c.stream for c in element.outputs))
        self.timed_outputs = {
            c.stream
            for c in element.outputs
            if any(name in plan.timed.get(c.stream, ()) for name, _ in c.ports)
        }
        """Streams that leave the element with times beside their rows."""
        self.near_outputs = near_outputs(plan, element)
        """Streams that leave the element for operators in the driver only."""
        self.uses = uses_of(element, self.out_streams)
        region = element.region
        self.runs: dict[OperatorName, Remembering] = {}
        for op in element.operators:
            run = self._run_of(op, entry_of(region, op.name))
            if run is not None:
                self.runs[op.name] = run
        self.entries = {entry_of(region, name) for name in (element.name, *self.runs)}
        """Store entries this element writes to."""
        self.sources = [run for run in self.runs.values() if isinstance(run, SourceRun)]
        self.sinks = [run for run in self.runs.values() if isinstance(run, SinkRun)]
        self.hosted = [run for run in self.runs.values() if isinstance(run, HostedRun)]
        self.threaded = [run for run in self.hosted if isinstance(run, ThreadedRun)]
        """Python operators with threads of their own."""
        self.conditional = [run for run in self.hosted if run.is_conditional]
        """Those that can be checkpointed at certain points only."""
        self.begins = [
            run for op in element.operators if not op.inputs for run in self.threaded if run.name == op.name
        ]
        """Those of them that have no input: rows begin there."""
        self.recordings: dict[OperatorName, Recording] = {}
        """Operators that keep their checkpoints in their output logs. Set before the first step."""
        self._stored_files: dict[str, SegmentRef] = {}
        """Files of batches that the newest epoch holds."""
        self._last_read: tuple[tuple[str, ...], pa.Table] = ((), None)
        self.deliveries = {
            op.name: delivery_of(element, op.name, self.out_streams)
            for op in element.operators
            if kind_of(op).role == "keyed"
        }

    # --- a step -------------------------------------------------------------------------------------------------

    def step(self, work: Work, name: StepName) -> Outcome:
        """Process what `work` holds. If it raises, the element's state is worthless until restored."""
        self.engine.begin_step(name, self.plan.graph.name)
        fp("step.begin")
        evaluation = Evaluation(self, work, name)
        try:
            for op in self.element.operators:
                evaluation.evaluate(op)
            outcome = evaluation.finish()
            for run in self.sources:
                if (piece := work.pieces.get(run.name)) is not None:
                    run.source.processed(piece)
        except Exception as error:
            self._remove_leftovers(name)
            explained = from_worker(self._explained(work, error), self.element.name)
            if explained is error:
                raise
            raise explained from error
        finally:
            evaluation.release()
        fp("step.end")
        return outcome

    def _remove_leftovers(self, name: StepName) -> None:
        for run in self.runs.values():
            if isinstance(run, KeyedRun):
                run.remove_leftovers(name)

    def _explained(self, work: Work, error: Exception) -> Exception:
        """A source may know what is wrong with the rows it gave: file and line of a malformed one."""
        for run in self.sources:
            piece = work.pieces.get(run.name)
            explained = error if piece is None else run.source.explain_failure(piece, error)
            if explained is not error:
                return explained
        return error

    def drain(self, name: StepName) -> Outcome:
        """Let hosted operators submit what they hold back; their output goes through the element's other operators."""
        tables: dict[OperatorName, list[pa.Table]] = {}
        for run in self.hosted:
            fp("drain.op.flush")
            run.drain()
            tables[run.name] = run.take_outputs()
        if not any(table.num_rows for ports in tables.values() for table in ports):
            return Outcome()
        self.engine.begin_step(name, self.plan.graph.name)
        evaluation = Evaluation(self, Work(), name)
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

    def pin(self, epoch: Epoch, attempt: Attempt, on_the_way: OnTheWay, borders: BorderNumbers) -> Pinned:
        operators = {name: run.pin(epoch) for name, run in self.runs.items()}
        pinned = Pinned(epoch, attempt, operators, on_the_way.kept, on_the_way.captured, borders)
        for batch in pinned.batches:
            batch.hold.take()
        return pinned

    def upload(self, pinned: Pinned, store: Store, region: RegionName) -> ElementPart:
        """Make a pin durable; returns the element's part of the manifest."""
        try:
            return self._upload(pinned, store, region)
        finally:
            for batch in pinned.batches:
                batch.hold.let_go()

    def _upload(self, pinned: Pinned, store: Store, region: RegionName) -> ElementPart:
        entry = entry_of(region, self.element.name)
        key = partial(state_key, pinned.epoch, pinned.attempt)
        prepared = self._prepared(pinned)
        operators = store_values(store, entry, key, pinned.epoch, prepared)
        before, self._stored_files = self._stored_files, {}

        def put(file: str) -> SegmentRef:
            # A batch that waits for long is captured by epoch after epoch, and stored once.
            ref = before.get(file) or self._stored_files.get(file)
            self._stored_files[file] = ref or _put_file(file, store, entry, pinned)
            return self._stored_files[file]

        def put_all(found: Batches) -> Kept:
            return {
                connection: tuple(
                    KeptBatch(b.rows + b.skip, tuple(map(put, b.files)), b.skip) for b in batches
                )
                for connection, batches in found.items()
                if batches
            }

        kept, captured = put_all(pinned.kept), put_all(pinned.captured)
        place = (self.element.name, pinned.epoch, pinned.attempt)
        return ElementPart(*place, operators, kept, captured, pinned.borders)

    def _prepared(self, pinned: Pinned) -> dict[Remembering, Prepared]:
        """Of all operators, in their order. Sinks beside the state: both mostly wait for the disk."""

        def part_of(run: Remembering) -> Prepared:
            return run.part_of(pinned.epoch, pinned.operators[run.name])

        if not self.sinks or len(self.sinks) == len(self.runs):
            return {run: part_of(run) for run in self.runs.values()}
        with ThreadPoolExecutor(len(self.sinks), thread_name_prefix="holdfast-prepare") as pool:
            beside = {run: pool.submit(part_of, run) for run in self.sinks}
            done = {run: part_of(run) for run in self.runs.values() if run not in beside}
            return {run: beside[run].result() if run in beside else done[run] for run in self.runs.values()}

    def restore(
        self,
        epoch: Epoch,
        parts: Mapping[str, OperatorPart | None] | None,
        store: Store | None,
        seen: SeenPairs | None = None,
    ) -> None:
        """Load the operators' parts of `epoch`; None: initial state, of all or of one. `seen`: pairs that were read
        before."""
        self._stored_files = {}  # what was stored for an epoch that is given up may be gone soon
        for name in self.runs:
            if parts is not None and name not in parts:
                raise MismatchError(
                    f"epoch {epoch} holds no state of operator {name!r}.",
                    cure="Give the operator the name it had, or start with a new store.",
                )
        if parts is None:
            for run in self.runs.values():
                run.restore(epoch, None, store)
            return
        assert store is not None
        with ReadAhead(store, keys_of(parts[name] for name in self.runs), seen) as pairs:
            for name, run in self.runs.items():
                run.restore(epoch, parts[name], store, pairs)

    def adopt(self, store: Store | None) -> None:
        """Begin without an epoch: with the initial state, or, of operators that were outside of regions until too much was lost, with
        that of their own checkpoints. DamagedError if one cannot be read: what it held was not counted as lost."""
        adopted = [name for name in self.runs if name in self.plan.adopted]
        known = {name: own_records.load(store, name) for name in adopted if store is not None}
        parts = {name: found.part for name, found in known.items() if found is not None}
        self.restore(INITIAL_EPOCH, {name: parts.get(name) for name in self.runs} if parts else None, store)
        for name in parts:
            run = self.runs[name]
            assert isinstance(run, KeyedRun | HostedRun)
            run.store_anew()  # an epoch refers to what is in the entries of its region

    def source(self, name: OperatorName) -> Source:
        return next(run.source for run in self.sources if run.name == name)

    def sources_are_finished(self) -> bool:
        """The run is to end in order. True if sources have nothing that was received and that another run could not read."""
        for run in self.sources:
            run.finish()
        return all(run.dry for run in self.sources)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What operators counted, as of their current state."""
        runs = [run for run in self.runs.values() if isinstance(run, KeyedRun | HostedRun | SourceRun)]
        return {run.name: counts for run in runs if (counts := run.counts)}

    def close(self) -> None:
        for run in self.hosted:
            run.close()

    # --- construction -------------------------------------------------------------------------------------------

    def _run_of(self, op: Operator, entry: str) -> Remembering | None:
        plan = self.plan
        match op.spec:
            case SourceSpec(source=source):
                return SourceRun(op.name, source, self.stamp_of(StreamRef(op.name)))
            case SinkSpec(sink=sink, on_error=on_error):
                run, clock = SinkRun(op.name, sink, on_error), clock_of(op, plan)
                if clock is not None:
                    assert isinstance(sink, PersistSink), "only logs hand event time on"
                    sink.use_clock(clock)
                    run.timed = sink
                return run
            case spec if kind_of(op).role == "keyed":
                chooser = self._budget.chooser(
                    op.name, limits_of(op.annotations.checkpoint_form or INCREMENTAL)
                )
                poison = poison_of(op)
                limit_s = None if poison is None else poison.timeout_s
                task = KeyedTask(op.name, logic_of(op, plan), poison is not None, limit_s)
                return KeyedRun(op.name, task, self.engine, entry, chooser)
            case HostedSpec() as spec:
                stamped_ports = tuple(StreamRef(op.name, p) in plan.stamped for p in range(op.outputs))
                source_index = plan.source_index.get(op.name, 0)
                form = op.annotations.checkpoint_form or spec.checkpoint
                within = None if form.kind == "full" else self._budget.chooser(op.name, limits_of(form))
                make = ThreadedRun if spec.threads else HostedRun
                made = (op.name, spec, source_index, stamped_ports, self.engine.thread)
                return make(*made, within, clock_of(op, plan), place_of(plan, op.name))
            case _:
                return None

    def stamp_of(self, stream: StreamRef) -> Stamp | None:
        """How a source stamps one of its streams, if somebody orders by it."""
        return Stamp(self.plan.source_index[stream.operator]) if stream in self.plan.stamped else None

    def read_batch(self, batch: Batch, stream: StreamRef, ordered: bool) -> pa.Table:
        """The rows of a batch; one of which only some were processed is not read again for the others."""
        files, table = self._last_read
        if files != batch.files:
            table = self.engine.read_batch(batch, self.schema_of(stream), ordered)
            self._last_read = (batch.files, table)
        return table

    def schema_of(self, stream: StreamRef) -> pa.Schema:
        """Columns of a stream as it travels, with positions if stamped."""
        schema = self.plan.schemas[stream]
        if stream in self.plan.stamped:
            for position in POSITION_FIELDS:
                schema = schema.append(position)
        return schema


def _put_file(file: str, store: Store, entry: str, pinned: Pinned) -> SegmentRef:
    path = Path(file)
    key = batch_key(pinned.epoch, pinned.attempt, path.name)
    return store.put_segment(entry, key, path, checksum_file(path)[0])
