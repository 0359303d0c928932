"""Which streams carry positions.

Positions begin where rows are made (sources, Python operators) and are carried by operators that keep rows apart. A
stream's *origins* are the operators that stamped its rows; None means its rows have no positions. Only streams on a
way from an origin to somebody who orders by positions are stamped: the rest pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.compiler.traverse import topological
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import (
    AGGREGATING,
    AggregateSpec,
    AsofMatch,
    BarrierSpec,
    CountWindow,
    DedupSpec,
    FilterSpec,
    Graph,
    HostedSpec,
    InputPort,
    IntervalMatch,
    JoinSpec,
    KeyedSpec,
    Operator,
    SelectSpec,
    SortSpec,
    SourceSpec,
    Spec,
    SplitSpec,
    StreamRef,
    TimeWindow,
    TopNSpec,
    Ttl,
    UnionSpec,
    WindowSpec,
    WithColumnsSpec,
)
from holdfast.state.aggregates.function_names import is_ordered

Origins = frozenset[OperatorName] | None

CARRYING = (FilterSpec, SelectSpec, WithColumnsSpec, SplitSpec, UnionSpec, DedupSpec)


def stamps(operator: Operator) -> bool:
    """True if positions of its output rows begin here. Sources and Python operators number their rows; results of
    event-time windows and of as-of joins come in the order of time, so time is their place."""
    match operator.spec:
        case SourceSpec() | HostedSpec() | SortSpec() | JoinSpec(match=AsofMatch()):
            return True
        case WindowSpec(window=TimeWindow(lateness_us=0), late=False):
            return True
    return False


def carries_order(operator: Operator) -> bool:
    """True if the operator's output rows have the positions of its input rows."""
    spec = operator.spec
    if isinstance(spec, WindowSpec):  # what rows complete has the position of the row that completed it
        return not isinstance(spec.window, TimeWindow)
    if isinstance(spec, BarrierSpec):  # without keys rows leave in the order of the first input
        return not spec.by
    return isinstance(spec, CARRYING) or (isinstance(spec, AggregateSpec) and spec.emit == "each")


def orders(operator: Operator) -> bool:
    """True if the operator needs to know the positions of its input rows."""
    spec = operator.spec
    each = isinstance(spec, AggregateSpec) and spec.emit == "each"
    by_position = (
        isinstance(spec, WindowSpec | DedupSpec | TopNSpec | SortSpec | BarrierSpec | JoinSpec | KeyedSpec)
        or each
    )
    return by_position or forgets_by_event_time(spec) or bool(ordered_functions(spec))


def forgets_by_event_time(spec: Spec) -> bool:
    """True if an aggregate's keys end where the watermark is past them."""
    return isinstance(spec, AggregateSpec) and isinstance(spec.ttl, Ttl) and spec.ttl.on is not None


def ordered_functions(spec: Spec) -> tuple[str, ...]:
    """What is computed that depends on the order of rows: `last(price)`, …"""
    computed = spec.aggregates if isinstance(spec, AGGREGATING) else ()
    return tuple(f"{function}({column})" for _, function, column in computed if is_ordered(function))


def find_origins(graph: Graph) -> Mapping[OperatorName, Origins]:
    """For each operator, who stamped the rows of its outputs."""
    origins: dict[OperatorName, Origins] = {}
    for name in topological(graph):
        operator = graph.operators[name]
        if stamps(operator):
            origins[name] = frozenset({name})
        elif carries_order(operator):
            origins[name] = origins_at(operator.inputs[0], origins)
        else:
            origins[name] = None
    return origins


def origins_at(port: InputPort, origins: Mapping[OperatorName, Origins]) -> Origins:
    """Who stamped the rows that arrive at a port; None if any of its streams is unordered."""
    together: frozenset[OperatorName] = frozenset()
    for stream in port.streams:
        found = origins[stream.operator]
        if found is None:
            return None
        together |= found
    return together


def find_stamped(graph: Graph) -> frozenset[StreamRef]:
    """Streams that must carry positions; refuses to order what has no order."""
    origins = find_origins(graph)
    stamped: set[StreamRef] = set()
    for operator in graph.operators.values():
        if orders(operator):
            for port in operator.inputs:
                check_ordered(graph, operator, port, origins)
                stamp_back(graph, port, stamped)
        elif isinstance(operator.spec, HostedSpec):
            for port in operator.inputs:
                if origins_at(port, origins) is not None:
                    stamp_back(graph, port, stamped)
    return frozenset(stamped)


def stamp_back(graph: Graph, port: InputPort, stamped: set[StreamRef]) -> None:
    """Stamp the port's streams and all they come from, back to where positions begin."""
    todo = list(port.streams)
    while todo:
        stream = todo.pop()
        if stream in stamped:
            continue
        stamped.add(stream)
        producer = graph.operators[stream.operator]
        if not stamps(producer):
            todo.extend(producer.inputs[0].streams)


def check_ordered(
    graph: Graph, operator: Operator, port: InputPort, origins: Mapping[OperatorName, Origins]
) -> None:
    """An order that does not depend on how rows were cut into batches. Event-time windows order within each source
    only, unless they compute something that depends on the order of all rows."""
    functions = ordered_functions(operator.spec)
    needs = _needs(operator.spec)
    found = origins_at(port, origins)
    if found is None:
        culprit = _where_lost(graph, port, origins)
        raise TopologyError(
            f"Operator {operator.name!r} {needs}, but its input has no order: {culprit.kind}"
            f" {culprit.name!r} does not keep positions.",
            cure="Keep positions: use only filter, select, with_columns, split and union before it."
            if not isinstance(operator.spec, AggregateSpec) or operator.spec.emit != "each" or functions
            else "Use emit='changes', or keep positions by using only filter, select, with_columns and split before it.",
        )
    in_time = _by_event_time(operator.spec)
    if len(found) > 1 and functions:
        raise TopologyError(
            f"Operator {operator.name!r} {needs}, but its input comes from several places, between which there is no"
            f" order: {', '.join(map(repr, sorted(found)))}.",
            cure="Use functions that need no order (min, max, collect_set), or aggregate each source by itself.",
        )
    if len(found) > 1 and not in_time:
        instead = _instead(operator.spec)
        raise TopologyError(
            f"Operator {operator.name!r} {needs}, but its input comes from several places:"
            f" {', '.join(map(repr, sorted(found)))}.",
            cure=instead,
        )


def _by_event_time(spec: Spec) -> bool:
    """True if rows of several sources need no order among them."""
    if isinstance(spec, JoinSpec):
        return isinstance(spec.match, IntervalMatch)
    return isinstance(spec, SortSpec) or (
        isinstance(spec, WindowSpec) and isinstance(spec.window, TimeWindow)
    )


def _needs(spec: Spec) -> str:
    """Why an operator needs an order."""
    if functions := ordered_functions(spec):
        return f"computes {', '.join(functions)}"
    match spec:
        case DedupSpec():
            return "lets the first row of each key pass"
        case TopNSpec():
            return "ranks rows"
        case SortSpec():
            return "sorts rows by event time"
        case BarrierSpec():
            return "puts rows side by side"
        case KeyedSpec():
            return "processes the rows of a key in their order"
        case JoinSpec():
            return "joins"
        case WindowSpec(window=window):
            if isinstance(window, TimeWindow):
                return "is over windows"
            return "counts rows" if isinstance(window, CountWindow) else "is over rows in their order"
        case AggregateSpec(emit="changes"):
            return "forgets keys by event time"
    return "has emit='each'"


def _instead(spec: Spec) -> str:
    """What to do where rows of several sources have no order."""
    match spec:
        case DedupSpec():
            return "Dedup each source by itself, or bring the rows into one order before: .sort(on='at', …)."
        case BarrierSpec():
            return "Bring the rows of each input into one order before: .sort(on='at', …)."
        case TopNSpec():
            return "Rank the rows of each source by itself, or bring them into one order before: .sort(on='at', …)."
        case KeyedSpec():
            return "Use one keyed operator per source, before the union; ordering several sources needs event time, which is not available yet."
        case JoinSpec():
            return "Join each source by itself, or join by an interval of time (within=)."
        case WindowSpec():
            return "Use windows over event time, or bring the rows into one order before: .sort(on='at', …)."
        case AggregateSpec(emit="changes"):
            return "Aggregate each source by itself, forget by processing time (ttl=holdfast.ttl(seconds)), or sort before."
    return "Use emit='changes', or bring the rows into one order before: .sort(on='at', …)."


def _where_lost(graph: Graph, port: InputPort, origins: Mapping[OperatorName, Origins]) -> Operator:
    while True:
        stream = next(stream for stream in port.streams if origins[stream.operator] is None)
        producer = graph.operators[stream.operator]
        if not carries_order(producer):
            return producer
        port = producer.inputs[0]
