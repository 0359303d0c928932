"""One element's work: a step evaluates its operators in order; between steps its state can be pinned and restored.

Called by one loop thread, except `upload`, which runs in the background over an immutable pin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.checkpoint.blobs import put_blobs
from holdfast.checkpoint.retention import entry_of
from holdfast.clock import Clock
from holdfast.compiler.logics import logic_of
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.durable import checksum_file
from holdfast.errors import MismatchError
from holdfast.failpoints import fp
from holdfast.ids import Attempt, ConnectionId, Epoch, OperatorName, RegionName
from holdfast.language.checkpoint_form import INCREMENTAL
from holdfast.language.connectors import POSITION_FIELDS, Stamp
from holdfast.language.graph import (
    HostedSpec,
    Operator,
    SinkSpec,
    SourceSpec,
    StreamRef,
)
from holdfast.operators.kinds import kind_of
from holdfast.runtime.element.evaluation import Evaluation, Outcome, Work, delivery_of, uses_of
from holdfast.runtime.element.hosted_run import HostedRun
from holdfast.runtime.element.keyed_run import KeyedRun
from holdfast.runtime.element.operator_runs import DurablePart, Remembering, SinkRun, SourceRun
from holdfast.runtime.element.variable_chain import limits_of
from holdfast.runtime.engines.engine import Engine, KeyedTask, StepName
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Pinned:
    """An element's state at an epoch, safe from later steps."""

    epoch: Epoch
    attempt: Attempt
    operators: Mapping[OperatorName, Any]
    kept: Mapping[ConnectionId, tuple[Batch, ...]]


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
        self.plan = plan
        self.element = element
        self.engine = engine
        self.clock = clock
        self.inside = {op.name for op in element.operators}
        self.out_streams = tuple(dict.fromkeys(c.stream for c in element.outputs))
        self.uses = uses_of(element, self.out_streams)
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
        self.engine.begin_step(name, self.plan.graph.name)
        evaluation = Evaluation(self, Work({}, {}), name)
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
        more: dict[str, DurablePart] = {}
        prefix = f"e{pinned.epoch}-a{pinned.attempt}"
        for name, run in self.runs.items():
            part = run.part_of(pinned.epoch, pinned.operators[name])
            parts[name] = {"blob": None, "segments": [[_as_list(r) for r in p] for p in part.segments]}
            if part.form is not None:
                parts[name]["form"] = part.form
            if part.blob is not None:
                blobs[f"{prefix}-{name}"] = part.blob
            blobs.update({f"{prefix}-{name}~{kind}": data for kind, data in part.pairs.items()})
            more[name] = part
        refs = put_blobs(store, entry_of(region, self.element.name), blobs)
        for operator, stored in parts.items():
            stored["blob"] = refs.get(f"{prefix}-{operator}")
            if more[operator].pairs:
                pairs = [refs[f"{prefix}-{operator}~{kind}"] for kind in more[operator].pairs]
                stored["pairs"] = [*more[operator].older, *pairs]
                self.runs[OperatorName(operator)].stored(pinned.epoch, pairs)
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

    def restore(
        self, epoch: Epoch, parts: Mapping[str, dict[str, Any] | None] | None, store: Store | None
    ) -> None:
        """Load the operators' parts of `epoch`; None: initial state, of all or of one."""
        for name, run in self.runs.items():
            if parts is not None and name not in parts:
                raise MismatchError(
                    f"epoch {epoch} holds no state of operator {name!r}.",
                    cure="Give the operator the name it had, or start with a new store.",
                )
            run.restore(epoch, None if parts is None else parts[name], store)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What operators counted, as of their current state."""
        runs = [run for run in self.runs.values() if isinstance(run, KeyedRun | HostedRun)]
        return {run.name: counts for run in runs if (counts := run.counts)}

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
            case spec if kind_of(op).role == "keyed":
                chooser = self._budget.chooser(
                    op.name, limits_of(op.annotations.checkpoint_form or INCREMENTAL)
                )
                return KeyedRun(op.name, KeyedTask(op.name, logic_of(op, plan)), self.engine, entry, chooser)
            case HostedSpec() as spec:
                stamped_ports = tuple(StreamRef(op.name, p) in plan.stamped for p in range(op.outputs))
                source_index = plan.source_index.get(op.name, 0)
                form = op.annotations.checkpoint_form or spec.checkpoint
                within = None if form.kind == "full" else self._budget.chooser(op.name, limits_of(form))
                return HostedRun(op.name, spec, source_index, stamped_ports, within)
            case _:
                return None

    def schema_of(self, stream: StreamRef) -> pa.Schema:
        """Columns of a stream as it travels, with positions if stamped."""
        schema = self.plan.schemas[stream]
        if stream in self.plan.stamped:
            for position in POSITION_FIELDS:
                schema = schema.append(position)
        return schema


def _as_list(ref: Any) -> list[Any]:
    return [ref.entry, ref.key, ref.size, ref.crc]
