"""Third pass: operators that run in one loop are fused into an element.

An edge is *cut* if it crosses the border of a region or of `.autonomous()`, if its target was isolated or is a Python
operator, or if it ends at a control port. The depth of an operator is the largest number of cuts on a way to it, so
it never shrinks along data. Operators fuse along uncut edges between equal depths: every connection between elements
then leads to a larger depth, and no cycle over data can arise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.compiler.regions import Regions
from holdfast.compiler.traverse import Edge, edges, edges_into, topological
from holdfast.ids import ElementName, OperatorName, RegionName
from holdfast.language.graph import Graph
from holdfast.operators.kinds import kind_of


@dataclass(frozen=True, slots=True)
class Element:
    """Operators in topological order. Named after the first."""

    operators: tuple[OperatorName, ...]
    depth: int
    region: RegionName | None

    @property
    def name(self) -> ElementName:
        return ElementName(self.operators[0])


def is_cut(graph: Graph, regions: Regions, edge: Edge) -> bool:
    """True if a connection must lie here."""
    target = graph.operators[edge.target]
    return (
        edge.control
        or edge.autonomous
        or regions.of.get(edge.source) != regions.of.get(edge.target)
        or target.annotations.isolated
        or kind_of(target).role == "hosted"
    )


def depths(graph: Graph, regions: Regions) -> Mapping[OperatorName, int]:
    """The largest number of cuts on a way to each operator over data ports."""
    entering = edges_into(edge for edge in edges(graph) if not edge.control)
    depth: dict[OperatorName, int] = {}
    for name in topological(graph):
        ways = (depth[e.source] + is_cut(graph, regions, e) for e in entering.get(name, ()))
        depth[name] = max(ways, default=0)
    return depth


def fuse(graph: Graph, regions: Regions) -> tuple[Element, ...]:
    """Elements in topological order over data connections."""
    depth = depths(graph, regions)
    order = topological(graph)
    leader: dict[OperatorName, OperatorName] = {name: name for name in order}

    def find(name: OperatorName) -> OperatorName:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for edge in edges(graph):
        if not is_cut(graph, regions, edge) and depth[edge.source] == depth[edge.target]:
            leader[find(edge.target)] = find(edge.source)

    members: dict[OperatorName, list[OperatorName]] = {}
    for name in order:
        members.setdefault(find(name), []).append(name)
    found = [Element(tuple(m), depth[m[0]], regions.of.get(m[0])) for m in members.values()]
    return tuple(sorted(found, key=lambda element: element.depth))
