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
from holdfast.language.graph import Graph, InputPort, Operator, StreamRef
from holdfast.operators.kind import Ordering
from holdfast.operators.kinds import kind_of

Origins = frozenset[OperatorName] | None


def find_origins(graph: Graph) -> Mapping[OperatorName, Origins]:
    """For each operator, who stamped the rows of its outputs."""
    origins: dict[OperatorName, Origins] = {}
    for name in topological(graph):
        operator = graph.operators[name]
        if kind_of(operator).stamps(operator):
            origins[name] = frozenset({name})
        elif kind_of(operator).carries(operator):
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
        ordering = kind_of(operator).ordering(operator)
        if ordering is not None:
            for port in operator.inputs:
                check_ordered(graph, operator, ordering, port, origins)
                stamp_back(graph, port, stamped)
        elif kind_of(operator).takes_positions(operator):
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
        if not kind_of(producer).stamps(producer):
            todo.extend(producer.inputs[0].streams)


def check_ordered(
    graph: Graph,
    operator: Operator,
    ordering: Ordering,
    port: InputPort,
    origins: Mapping[OperatorName, Origins],
) -> None:
    """An order that does not depend on how rows were cut into batches."""
    found = origins_at(port, origins)
    if found is None:
        culprit = _where_lost(graph, port, origins)
        raise TopologyError(
            f"Operator {operator.name!r} {ordering.why}, but its input has no order: {culprit.kind}"
            f" {culprit.name!r} does not keep positions.",
            cure=ordering.lost,
        )
    unordered = _unordered(graph, port)
    if unordered and ordering.several is not None:
        raise TopologyError(
            f"Operator {operator.name!r} {ordering.why}, but what {unordered[0]!r} makes comes in no order.",
            cure="Bring the rows into the order of event time before: .sort(), or .sort(by='user') for each key.",
        )
    if len(found) > 1 and ordering.several is not None:
        raise TopologyError(
            f"Operator {operator.name!r} {ordering.why}, but its input comes from several places:"
            f" {', '.join(map(repr, sorted(found)))}.",
            cure=ordering.several,
        )


def _unordered(graph: Graph, port: InputPort) -> list[OperatorName]:
    """Those on the way from where positions begin whose rows come in no order."""
    found: set[OperatorName] = set()
    todo, seen = list(port.streams), set(port.streams)
    while todo:
        producer = graph.operators[todo.pop().operator]
        if not kind_of(producer).orders(producer):
            found.add(producer.name)
        if not kind_of(producer).stamps(producer):
            before = [stream for stream in producer.inputs[0].streams if stream not in seen]
            seen.update(before)
            todo += before
    return sorted(found)


def _where_lost(graph: Graph, port: InputPort, origins: Mapping[OperatorName, Origins]) -> Operator:
    while True:
        stream = next(stream for stream in port.streams if origins[stream.operator] is None)
        producer = graph.operators[stream.operator]
        if not kind_of(producer).carries(producer):
            return producer
        port = producer.inputs[0]
