"""Which run-time side an operator has, made from the plan."""

from __future__ import annotations

from holdfast.compiler.compile import clock_of, logic_of
from holdfast.compiler.plan import Plan
from holdfast.language.checkpoint_form import INCREMENTAL
from holdfast.language.graph import HostedSpec, Operator, SinkSpec, SourceSpec, StreamRef
from holdfast.operators.kinds import kind_of
from holdfast.runtime.element.element_streams import stamp_of
from holdfast.runtime.element.poison.poisoned_step import poison_of
from holdfast.runtime.engines.engine import Engine, KeyedTask
from holdfast.runtime.persisted.connectors import PersistSink
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.runs.hosted.hosted_output import HostedOutput
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.hosted.operator_context import place_of
from holdfast.runtime.runs.hosted.own_threads import ThreadedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import Remembering, SinkRun, SourceRun
from holdfast.runtime.runs.variable_chain import limits_of


def run_of(op: Operator, plan: Plan, engine: Engine, entry: str, budget: RestoreBudget) -> Remembering | None:
    """None: the operator has nothing to remember. `entry`: where the store has its state."""
    match op.spec:
        case SourceSpec(source=source):
            return SourceRun(op.name, source, stamp_of(plan, StreamRef(op.name)))
        case SinkSpec(sink=sink, on_error=on_error):
            run, clock = SinkRun(op.name, sink, on_error), clock_of(op, plan)
            if clock is not None:
                assert isinstance(sink, PersistSink), "only logs hand event time on"
                sink.use_clock(clock)
                run.timed = sink
            return run
        case spec if kind_of(op).role == "keyed":
            chooser = budget.chooser(op.name, limits_of(op.annotations.checkpoint_form or INCREMENTAL))
            poison = poison_of(op)
            limit_s = None if poison is None else poison.timeout_s
            task = KeyedTask(op.name, logic_of(op, plan), poison is not None, limit_s)
            return KeyedRun(op.name, task, engine, entry, chooser)
        case HostedSpec() as spec:
            stamped_ports = tuple(StreamRef(op.name, p) in plan.stamped for p in range(op.outputs))
            source_index = plan.source_index.get(op.name, 0)
            form = op.annotations.checkpoint_form or spec.checkpoint
            within = None if form.kind == "full" else budget.chooser(op.name, limits_of(form))
            output = HostedOutput(op.name, spec, source_index, stamped_ports)
            make = ThreadedRun if spec.threads else HostedRun
            return make(output, engine.thread, within, clock_of(op, plan), place_of(plan, op.name))
        case _:
            return None
