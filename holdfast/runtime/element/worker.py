"""One element's work: a step evaluates its operators in order; between steps its state can be pinned and restored.

Called by one loop thread, except `upload`, which runs in the background over an immutable pin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from holdfast.checkpoint import own_records
from holdfast.checkpoint.parts import ElementPart, OperatorPart
from holdfast.checkpoint.read_ahead import ReadAhead, SeenPairs, keys_of
from holdfast.checkpoint.stored_names import entry_of
from holdfast.clock import Clock
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.errors import MismatchError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Attempt, Epoch, OperatorName, RegionName
from holdfast.language.connectors import Source
from holdfast.language.graph import StreamRef
from holdfast.runtime.element.borders import BorderNumbers
from holdfast.runtime.element.element_streams import ElementStreams
from holdfast.runtime.element.epochs.storing import OnTheWay, Pinned, Storing
from holdfast.runtime.element.evaluation import Evaluation, Outcome, Work
from holdfast.runtime.element.eventual.recording import Recording
from holdfast.runtime.element.making_runs import run_of
from holdfast.runtime.engines.engine import Engine, StepName
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.hosted.own_threads import ThreadedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import Remembering, SinkRun, SourceRun
from holdfast.runtime.worker_errors import from_worker
from holdfast.store.base import Store


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
        self.hurries = True
        """Steps of Python operators end after some time, also in the middle of a batch."""
        self.plan = plan
        self.element = element
        self.engine = engine
        self.clock = clock
        self.streams = ElementStreams(plan, element)
        region, budget = element.region, budget or RestoreBudget()
        self.runs: dict[OperatorName, Remembering] = {}
        for op in element.operators:
            run = run_of(op, plan, engine, entry_of(region, op.name), budget)
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
        self.recordings: dict[OperatorName, Recording[Any, Any]] = {}
        """Operators that keep their checkpoints in their output logs. Set before the first step."""
        self._storing = Storing(element.name, self.runs)
        self._last_read: tuple[tuple[str, ...], pa.Table] = ((), None)

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
            return self._storing.part_of(pinned, store, region)
        finally:
            for batch in pinned.batches:
                batch.hold.let_go()

    def restore(
        self,
        epoch: Epoch,
        parts: Mapping[str, OperatorPart | None] | None,
        store: Store | None,
        seen: SeenPairs | None = None,
    ) -> None:
        """Load the operators' parts of `epoch`; None: initial state, of all or of one. `seen`: pairs that were read
        before."""
        self._storing.forget()  # what was stored for an epoch that is given up may be gone soon
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

    def read_batch(self, batch: Batch, stream: StreamRef, ordered: bool) -> pa.Table:
        """The rows of a batch; one of which only some were processed is not read again for the others."""
        files, table = self._last_read
        if files != batch.files:
            table = self.engine.read_batch(batch, self.streams.schema_of(stream), ordered)
            self._last_read = (batch.files, table)
        return table
