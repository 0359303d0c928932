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
    AggregateSpec,
    FilterSpec,
    Graph,
    HostedSpec,
    InputPort,
    Operator,
    SelectSpec,
    SourceSpec,
    SplitSpec,
    StreamRef,
    UnionSpec,
    WindowSpec,
    WithColumnsSpec,
)

Origins = frozenset[OperatorName] | None

STAMPING = (SourceSpec, HostedSpec)
CARRYING = (FilterSpec, SelectSpec, WithColumnsSpec, SplitSpec, UnionSpec)


def carries_order(operator: Operator) -> bool:
    """True if the operator's output rows have the positions of its input rows."""
    spec = operator.spec
    return isinstance(spec, CARRYING) or (isinstance(spec, AggregateSpec) and spec.emit == "each")


def orders(operator: Operator) -> bool:
    """True if the operator needs to know the positions of its input rows."""
    spec = operator.spec
    return isinstance(spec, WindowSpec) or (isinstance(spec, AggregateSpec) and spec.emit == "each")


def find_origins(graph: Graph) -> Mapping[OperatorName, Origins]:
    """For each operator, who stamped the rows of its outputs."""
    origins: dict[OperatorName, Origins] = {}
    for name in topological(graph):
        operator = graph.operators[name]
        if isinstance(operator.spec, STAMPING):
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
            check_ordered(graph, operator, origins)
            stamp_back(graph, operator.inputs[0], stamped)
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
        if not isinstance(producer.spec, STAMPING):
            todo.extend(producer.inputs[0].streams)


def check_ordered(graph: Graph, operator: Operator, origins: Mapping[OperatorName, Origins]) -> None:
    """An order that does not depend on how rows were cut into batches. Windows order within each source only."""
    needs = "is over windows" if isinstance(operator.spec, WindowSpec) else "has emit='each'"
    found = origins_at(operator.inputs[0], origins)
    if found is None:
        culprit = _where_lost(graph, operator.inputs[0], origins)
        raise TopologyError(
            f"Operator {operator.name!r} {needs}, but its input has no order: {culprit.kind}"
            f" {culprit.name!r} does not keep positions.",
            cure="Keep positions: use only filter, select, with_columns, split and union before it."
            if isinstance(operator.spec, WindowSpec)
            else "Use emit='changes', or keep positions by using only filter, select, with_columns and split before it.",
        )
    if len(found) > 1 and not isinstance(operator.spec, WindowSpec):
        raise TopologyError(
            f"Operator {operator.name!r} has emit='each', but its input comes from several places:"
            f" {', '.join(map(repr, sorted(found)))}.",
            cure="Use emit='changes'; ordering several sources needs event time, which is not available yet.",
        )


def _where_lost(graph: Graph, port: InputPort, origins: Mapping[OperatorName, Origins]) -> Operator:
    while True:
        stream = next(stream for stream in port.streams if origins[stream.operator] is None)
        producer = graph.operators[stream.operator]
        if not carries_order(producer):
            return producer
        port = producer.inputs[0]
