"""From an operator of the plan to what its tasks run."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.compiler.order import find_origins, origins_at
from holdfast.compiler.plan import Plan
from holdfast.errors import TopologyError
from holdfast.language.graph import (
    AggregateSpec,
    AsofMatch,
    BarrierSpec,
    CountWindow,
    DedupSpec,
    DeltaWindow,
    IntervalMatch,
    JoinSpec,
    KeyedSpec,
    MarkedWindow,
    Operator,
    SortSpec,
    StreamRef,
    TimeWindow,
    TopNSpec,
    Ttl,
    WindowMatch,
    WindowSpec,
)
from holdfast.language.operators.joins import right_names
from holdfast.language.operators.windows import attribute_of
from holdfast.operators.aggregates.attributed import AttributedAggregate
from holdfast.operators.aggregates.counted import CountedAggregate
from holdfast.operators.aggregates.expiring import ExpiringAggregate
from holdfast.operators.aggregates.running import RunningAggregate
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.joins.asof import AsofJoin
from holdfast.operators.joins.interval import IntervalJoin
from holdfast.operators.joins.joining import PairShape
from holdfast.operators.joins.ordered_join import OrderedJoin
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.operators.python.keyed_python import KeyedPython
from holdfast.operators.rows.barrier import Barrier
from holdfast.operators.rows.dedup import Dedup
from holdfast.operators.rows.ranked import TopOfWindows, TopRows
from holdfast.operators.rows.sorting import Sort
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.joins.sides import MERGED_ROWS
from holdfast.state.keyed.expiry import remembering
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.run_windows import RunWindows
from holdfast.state.windows.time_windows import Windows


def logic_of(op: Operator, plan: Plan) -> KeyedLogic:
    """The logic of a keyed operator."""
    schema = plan.schemas[op.inputs[0].streams[0]]
    output = plan.schemas[StreamRef(op.name)]
    stamped = StreamRef(op.name) in plan.stamped
    match op.spec:
        case AggregateSpec(by=by, aggregates=aggregates, emit=emit, ttl=Ttl() as ttl):
            remembered = remembering(by, aggregates, schema)
            return ExpiringAggregate(remembered, ttl, emit, output, stamped)
        case DedupSpec(by=by, ttl=ttl):
            return Dedup.plan(by, ttl, schema, stamped)
        case BarrierSpec(by=by):
            inputs = [plan.schemas[port.streams[0]] for port in op.inputs]
            origins = origins_at(op.inputs[0], find_origins(plan.graph)) or ()
            number = plan.source_index[next(iter(origins))] if stamped else None
            return Barrier.plan(by, inputs, output, number)
        case SortSpec(on=on, delays_us=delays, idle_us=idle):
            return Sort(timed_port(op, 0, (), on, delays, plan, idle), schema, stamp_of(op, plan))
        case TopNSpec(n=n, by=by, order=order, window=None):
            return TopRows.plan(n, by, order, schema, output)
        case TopNSpec(n=n, by=by, order=order, window=TimeWindow() as window):
            port = timed_port(op, 0, by, window.on, window.delays_us, plan, window.idle_us)
            return TopOfWindows.plan(n, order, window, port, schema, output)
        case AggregateSpec(by=by, aggregates=aggregates, emit=emit):
            return RunningAggregate(Aggregation.plan(by, aggregates, schema), emit, output, stamped)
        case WindowSpec(by=by, aggregates=aggregates, window=CountWindow(size=size, every=every)):
            return CountedAggregate(
                CountWindows.plan(size, every, by, aggregates, schema), by, output, stamped
            )
        case WindowSpec(by=by, aggregates=aggregates, window=MarkedWindow(until=until)):
            marked = RunWindows.plan(until, by, aggregates, schema)
            return AttributedAggregate(marked, by, output, stamped)
        case WindowSpec(by=by, aggregates=aggregates, window=DeltaWindow(every=every) as window):
            of = attribute_of(schema, window)
            if every is None:
                return AttributedAggregate(RunWindows.plan(of, by, aggregates, schema), by, output, stamped)
            near = DeltaWindows.plan(of, every, by, aggregates, schema)
            return AttributedAggregate(near, by, output, stamped)
        case WindowSpec(by=by, aggregates=aggregates, window=TimeWindow() as window, late=late):
            windows = Windows.plan(
                window.size_us, window.slide_us, window.lateness_us, by, aggregates, schema
            )
            port = timed_port(op, 0, by, window.on, window.delays_us, plan, window.idle_us)
            return WindowedAggregate(windows, port, schema, output, late, stamp_of(op, plan))
        case JoinSpec() as spec:
            return join_of(op, spec, plan)
        case KeyedSpec() as spec:
            return KeyedPython.plan(op.name, spec, schema)
    raise TopologyError(f"operator {op.name!r} ({op.kind}) keeps no keyed state.")


def join_of(op: Operator, spec: JoinSpec, plan: Plan) -> KeyedLogic:
    """The logic of a join."""
    left, right = (plan.schemas[port.streams[0]] for port in op.inputs)
    shape = PairShape(plan.schemas[StreamRef(op.name)], right_names(right, spec), spec.where)
    match spec.match:
        case WindowMatch(left=mine, right=other) if spec.on is None:
            form = op.annotations.checkpoint_form
            groups = MERGED_ROWS if form is None or form.group_rows is None else form.group_rows
            return WindowJoin((spec.left_by, spec.right_by), (left, right), (mine, other), shape, groups)
    assert spec.on is not None
    ports = (
        timed_port(op, 0, spec.left_by, spec.on[0], spec.delays_us, plan, spec.idle_us),
        timed_port(op, 1, spec.right_by, spec.on[1], spec.delays_us, plan, spec.idle_us),
    )
    outer = spec.how == "left"
    match spec.match:
        case IntervalMatch(before_us=before, after_us=after):
            return IntervalJoin(ports, (left, right), shape, outer, before, after)
        case AsofMatch(tolerance_us=tolerance, exact=exact):
            return AsofJoin(ports, (left, right), shape, outer, tolerance, exact, stamp_of(op, plan))
        case WindowMatch(left=mine, right=other):
            return OrderedJoin(ports, (left, right), shape, outer, (mine, other))


def stamp_of(op: Operator, plan: Plan) -> int | None:
    """The number with which an operator stamps its own output, if somebody orders by it."""
    return plan.source_index[op.name] if StreamRef(op.name) in plan.stamped else None


def timed_port(
    op: Operator,
    port: int,
    by: tuple[str, ...],
    on: str,
    delays: Sequence[tuple[str, int]],
    plan: Plan,
    idle_us: int | None = None,
) -> TimedPort:
    """An input port with event time, and the delay of each source that stamped its rows."""
    origins = origins_at(op.inputs[port], find_origins(plan.graph)) or ()
    sources: dict[int, str] = {plan.source_index[name]: name for name in origins}
    given = dict(delays)
    delays_us = {number: given.get(name, given.get("", 0)) for number, name in sources.items()}
    return TimedPort(by, on, sources, delays_us, idle_us)
