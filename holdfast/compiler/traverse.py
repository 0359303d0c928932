"""Walking the graph, written once: edges, order, reachability. Every pass uses these."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, SinkSpec, StreamRef
from holdfast.protocol.bounds.loss_budget import budget_key


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream as it arrives at one input port."""

    stream: StreamRef
    target: OperatorName
    port: int
    control: bool
    autonomous: bool
    """It came through `.autonomous()`."""

    @property
    def source(self) -> OperatorName:
        return self.stream.operator


def edges(graph: Graph) -> tuple[Edge, ...]:
    """All edges, in the order the operators and their ports were written."""
    return tuple(
        Edge(stream, operator.name, index, port.control, stream in port.autonomous)
        for operator in graph.operators.values()
        for index, port in enumerate(operator.inputs)
        for stream in port.streams
    )


def edges_from(found: Iterable[Edge]) -> Mapping[OperatorName, list[Edge]]:
    """Edges by the operator they leave."""
    return _grouped(found, lambda edge: edge.source)


def edges_into(found: Iterable[Edge]) -> Mapping[OperatorName, list[Edge]]:
    """Edges by the operator they enter."""
    return _grouped(found, lambda edge: edge.target)


def _grouped(found: Iterable[Edge], key: Callable[[Edge], OperatorName]) -> Mapping[OperatorName, list[Edge]]:
    groups: dict[OperatorName, list[Edge]] = {}
    for edge in found:
        groups.setdefault(key(edge), []).append(edge)
    return groups


def topological(graph: Graph) -> tuple[OperatorName, ...]:
    """Operators so that data flows forward; where there is a choice, as written. Operators on a cycle are left out."""
    rank = {name: index for index, name in enumerate(graph.operators)}
    data = [edge for edge in edges(graph) if not edge.control]
    waiting = dict.fromkeys(graph.operators, 0)
    for edge in data:
        waiting[edge.target] += 1
    leaving = edges_from(data)
    ready = [rank[name] for name, count in waiting.items() if not count]
    names = tuple(graph.operators)
    order: list[OperatorName] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for edge in leaving.get(name, ()):
            waiting[edge.target] -= 1
            if not waiting[edge.target]:
                heapq.heappush(ready, rank[edge.target])
    return tuple(order)


def data_cycle(graph: Graph) -> tuple[OperatorName, ...]:
    """Operators of one cycle over data ports, in the order of flow, first written first; empty if there is none."""
    left = set(graph.operators) - set(topological(graph))
    if not left:
        return ()
    entering = edges_into(e for e in edges(graph) if not e.control and e.source in left)
    path: list[OperatorName] = [next(name for name in graph.operators if name in left)]
    while path.index(path[-1]) == len(path) - 1:
        path.append(entering[path[-1]][0].source)
    cycle = path[path.index(path[-1]) : -1][::-1]
    first = cycle.index(next(name for name in graph.operators if name in cycle))
    return tuple(cycle[first:] + cycle[:first])


def reachable(
    start: OperatorName, leaving: Mapping[OperatorName, list[Edge]], follow: Callable[[Edge], bool]
) -> frozenset[OperatorName]:
    """The operator and all that lie behind it, along edges that `follow` allows."""
    found = {start}
    todo = [start]
    while todo:
        for edge in leaving.get(todo.pop(), ()):
            if edge.target not in found and follow(edge):
                found.add(edge.target)
                todo.append(edge.target)
    return frozenset(found)


def _leading(graph: Graph) -> Mapping[OperatorName, list[Edge]]:
    """Edges by the operator they leave; what a log leads to is behind its sink."""
    found = list(edges(graph))
    for name, operator in graph.operators.items():
        if isinstance(operator.spec, SinkSpec) and operator.spec.sink.leads_to is not None:
            found.append(Edge(StreamRef(name), OperatorName(operator.spec.sink.leads_to), 0, False, True))
    return edges_from(found)


def sinks_behind(graph: Graph, logs: bool = True) -> Mapping[OperatorName, tuple[OperatorName, ...]]:
    """Of each operator the sinks that its rows lead to, itself included. `logs`: also by way of logs."""
    leaving = _leading(graph) if logs else edges_from(edges(graph))
    sinks = {name for name, operator in graph.operators.items() if isinstance(operator.spec, SinkSpec)}
    return {name: tuple(sorted(sinks & reachable(name, leaving, lambda _: True))) for name in graph.operators}


def counted_behind(graph: Graph) -> Mapping[OperatorName, tuple[OperatorName, ...]]:
    """Of each operator all for which is counted what its rows cost if they are lost: the sinks that they lead to, and the streams with
    a loss budget, under `budget_key`. Itself included."""
    leaving, sinks = _leading(graph), sinks_behind(graph)
    limited = {
        name for name, operator in graph.operators.items() if operator.annotations.may_lose is not None
    }
    found = {}
    for name in graph.operators:
        streams = limited & reachable(name, leaving, lambda _: True) if limited else set()
        found[name] = tuple(sorted((*sinks[name], *map(budget_key, streams))))
    return found
