"""From an operator of the plan to what its tasks run."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.compiler.order import find_origins, origins_at
from holdfast.compiler.plan import Plan
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import AggregateSpec, CountWindow, Operator, StreamRef, TimeWindow, WindowSpec
from holdfast.runtime.executor.counted import CountedAggregate
from holdfast.runtime.executor.logic import KeyedLogic
from holdfast.runtime.executor.running import RunningAggregate
from holdfast.runtime.executor.windowed import WindowedAggregate
from holdfast.state.aggregates import Aggregation
from holdfast.state.count_windows import CountWindows
from holdfast.state.windows import Windows


def logic_of(op: Operator, plan: Plan) -> KeyedLogic:
    """The logic of a keyed operator."""
    schema = plan.schemas[op.inputs[0].streams[0]]
    output = plan.schemas[StreamRef(op.name)]
    stamped = StreamRef(op.name) in plan.stamped
    match op.spec:
        case AggregateSpec(by=by, aggregates=aggregates, emit=emit):
            return RunningAggregate(Aggregation.plan(by, aggregates, schema), emit, output, stamped)
        case WindowSpec(by=by, aggregates=aggregates, window=CountWindow(size=size, every=every)):
            return CountedAggregate(
                CountWindows.plan(size, every, by, aggregates, schema), by, output, stamped
            )
        case WindowSpec(by=by, aggregates=aggregates, window=TimeWindow() as window, late=late):
            windows = Windows.plan(
                window.size_us, window.slide_us, window.lateness_us, by, aggregates, schema
            )
            sources: dict[int, str] = {plan.source_index[name]: name for name in origins_of(op, plan)}
            delays = delays_of(window, sources)
            return WindowedAggregate(windows, by, window.on, sources, delays, schema, output, late)
    raise TopologyError(f"operator {op.name!r} ({op.kind}) keeps no keyed state.")


def origins_of(op: Operator, plan: Plan) -> frozenset[OperatorName]:
    """Who stamped the operator's input rows."""
    return frozenset(origins_at(op.inputs[0], find_origins(plan.graph)) or ())


def delays_of(window: TimeWindow, sources: Mapping[int, str]) -> dict[int, int]:
    """The delay of each source, by its number."""
    given = dict(window.delays_us)
    return {number: given.get(name, given.get("", 0)) for number, name in sources.items()}
