"""Operators that pair rows by their number: what leads to one that nobody put into a region becomes a region of its own.

`zip` puts the k-th rows of its inputs side by side. Elsewhere outside of regions a lost row is just that; here every pair behind it
would be a wrong one, for ever. So rows on their way to such an operator must not get lost: the sources before it, all that lies between,
and the operator itself are restored together. The region ends right behind it: whatever follows stays as it was written.

Where that cannot be, because a source cannot be read again, an operator has no name, or the user gave one of them a checkpoint of its own or
an end to a region, everything stays as written: `explain()` shows the operator outside of regions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from holdfast.compiler.regions import merge, reach_of_marks
from holdfast.compiler.traverse import Edge, edges, edges_into
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, HostedSpec, InputPort, Operator, RegionSettings, SourceSpec
from holdfast.language.operators.rows import BarrierSpec
from holdfast.operators.kinds import kind_of

PREFIX = "pairs-"
"""Of the names of such regions."""


def keep_pairs(graph: Graph) -> Graph:
    """The graph with a region around each pairing operator that has none and can have one."""
    barriers = [name for name, op in graph.operators.items() if isinstance(op.spec, BarrierSpec)]
    if not barriers:
        return graph
    found = edges(graph)
    taken = frozenset[OperatorName]().union(*(members for _, members in reach_of_marks(graph, found)), ())
    entering = edges_into(found)
    closures = [(name, _leading_to(name, entering)) for name in barriers]
    able = [(name, members) for name, members in closures if _is_able(graph, members, taken, found)]
    for group in merge(able):
        together = frozenset[OperatorName]().union(*(members for _, members in group))
        first = next(name for name in graph.operators if name in {barrier for barrier, _ in group})
        graph = _with_region(graph, together, f"{PREFIX}{first}")
    return graph


def pairs_kept_by(name: str, members: Collection[OperatorName], graph: Graph) -> tuple[OperatorName, ...]:
    """The pairing operators for which a region was made; none if the user wrote it."""
    barriers = tuple(each for each in members if isinstance(graph.operators[each].spec, BarrierSpec))
    return barriers if name in {f"{PREFIX}{each}" for each in barriers} else ()


def _leading_to(name: OperatorName, entering: Mapping[OperatorName, list[Edge]]) -> frozenset[OperatorName]:
    """The operator and all that lie before it."""
    members, todo = {name}, [name]
    while todo:
        new = {edge.source for edge in entering.get(todo.pop(), ())} - members
        members |= new
        todo += new
    return frozenset(members)


def _is_able(
    graph: Graph, members: Set[OperatorName], taken: Set[OperatorName], found: Collection[Edge]
) -> bool:
    inside = [edge for edge in found if edge.target in members]
    return (
        not members & taken
        and not any(edge.autonomous for edge in inside)
        and all(_may_be_in(graph.operators[name]) for name in members)
    )


def _may_be_in(op: Operator) -> bool:
    marks = op.annotations
    if marks.checkpoint_every_s is not None or marks.autonomous:
        return False
    if isinstance(op.spec, SourceSpec):
        return op.named and op.spec.source.replayable
    if isinstance(op.spec, HostedSpec):
        return op.named and bool(op.inputs) and not op.spec.threads and not op.spec.conditional
    return op.named or kind_of(op).role != "keyed"


def _with_region(graph: Graph, members: Set[OperatorName], name: str) -> Graph:
    operators = {}
    for each, op in graph.operators.items():
        if each not in members:
            op = replace(op, inputs=tuple(_ending(port, members) for port in op.inputs))
        elif isinstance(op.spec, SourceSpec):
            op = replace(op, annotations=replace(op.annotations, consistent=RegionSettings(name=name)))
        operators[each] = op
    return replace(graph, operators=operators)


def _ending(port: InputPort, members: Set[OperatorName]) -> InputPort:
    """A port behind the region: no region reaches its operator along the streams that leave it."""
    leaving = {stream for stream in port.streams if stream.operator in members}
    return replace(port, autonomous=port.autonomous | leaving) if leaving else port
