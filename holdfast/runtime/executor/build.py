"""From an operator of the plan to what its tasks run."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.compiler.order import find_origins, origins_at
from holdfast.compiler.plan import Plan
from holdfast.errors import TopologyError
from holdfast.language.graph import AggregateSpec, CountWindow, Operator, StreamRef, TimeWindow, WindowSpec
from holdfast.runtime.executor.counted import CountedAggregate
from holdfast.runtime.executor.logic import KeyedLogic
from holdfast.runtime.executor.running import RunningAggregate
from holdfast.runtime.executor.timed import TimedPort
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
            port = timed_port(op, 0, by, window.on, window.delays_us, plan)
            return WindowedAggregate(windows, port, schema, output, late)
    raise TopologyError(f"operator {op.name!r} ({op.kind}) keeps no keyed state.")


def timed_port(
    op: Operator, port: int, by: tuple[str, ...], on: str, delays: Sequence[tuple[str, int]], plan: Plan
) -> TimedPort:
    """An input port with event time, and the delay of each source that stamped its rows."""
    origins = origins_at(op.inputs[port], find_origins(plan.graph)) or ()
    sources: dict[int, str] = {plan.source_index[name]: name for name in origins}
    given = dict(delays)
    delays_us = {number: given.get(name, given.get("", 0)) for number, name in sources.items()}
    return TimedPort(by, on, sources, delays_us)
