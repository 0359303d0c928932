"""Third pass: operators that run in one loop are fused into an element.

An edge is *cut* if it crosses the border of a region or of `.autonomous()`, if its target was isolated or is a Python
operator, or if it ends at a control port. The depth of an operator is the largest number of cuts on a way to it, so
it never shrinks along data. Operators fuse along uncut edges between equal depths: every connection between elements
then leads to a larger depth, and no cycle over data can arise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from holdfast.compiler.plan import ConnectionPlan, RegionPlan
from holdfast.compiler.regions import Region, Regions, check_names_differ
from holdfast.compiler.traverse import Edge, edges, edges_into, topological
from holdfast.ids import ConnectionId, ElementName, OperatorName, RegionName
from holdfast.language.graph import Graph, StreamRef
from holdfast.operators.kinds import kind_of
from holdfast.protocol.shape import Link, RegionShape


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


def independent(regions: Regions, elements: tuple[Element, ...]) -> tuple[Regions, tuple[Element, ...]]:
    """Mode `independent`: each element of such a region is a region of its own."""
    alone = {region.name: region for region in regions.regions if region.settings.mode == "independent"}
    made: list[Region] = []
    found: list[Element] = []
    for element in elements:
        if element.region not in alone:
            found.append(element)
            continue
        group = alone[element.region]
        name = RegionName(f"{group.name}.{element.name}")
        settings = replace(group.settings, name=name)
        starts = tuple(start for start in group.starts if start in element.operators)
        made.append(Region(name, settings, element.operators, starts or element.operators[:1], group.name))
        found.append(replace(element, region=name))
    others = [region for region in regions.regions if region.name not in alone]
    of = {**regions.of, **{member: region.name for region in made for member in region.members}}
    check_names_differ((*others, *made))
    return Regions((*others, *made), of), tuple(found)


Key = tuple[StreamRef, ElementName, bool, RegionName | None, bool]


def connect(graph: Graph, regions: Regions, elements: Iterable[Element]) -> tuple[ConnectionPlan, ...]:
    """One connection per stream and element that reads it; control and autonomous ports have their own."""
    home = {name: element.name for element in elements for name in element.operators}
    ports: dict[Key, list[tuple[OperatorName, int]]] = {}
    for edge in edges(graph):
        if edge.control or edge.autonomous or home[edge.source] != home[edge.target]:
            ports.setdefault(_key(edge, home[edge.target], regions), []).append((edge.target, edge.port))
    ids: set[str] = set()
    return tuple(
        ConnectionPlan(
            id=_new_id(key, ids),
            stream=key[0],
            source=home[key[0].operator],
            target=key[1],
            ports=tuple(where),
            control=key[2],
            region=key[3],
            preserved=key[4],
        )
        for key, where in ports.items()
    )


def _key(edge: Edge, target: ElementName, regions: Regions) -> Key:
    return edge.stream, target, edge.control, regions.along(edge), regions.preserves(edge)


def _new_id(key: Key, taken: set[str]) -> ConnectionId:
    """`orders.0--totals`, safe in file names; a number behind it where names would make two alike."""
    stream, target, control, _, _ = key
    base = f"{stream.operator}.{stream.port}--{target}" + ("--control" if control else "")
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}--{number}"
    taken.add(found)
    return ConnectionId(found)


def plan_region(
    graph: Graph, region: Region, elements: Iterable[Element], connections: Iterable[ConnectionPlan]
) -> RegionPlan:
    """A region with the elements and consistent links the protocol works on."""
    names = tuple(element.name for element in elements if element.region == region.name)
    links = tuple(Link(c.id, c.source, c.target, c.control) for c in connections if c.region == region.name)
    conditional = frozenset(
        element.name
        for element in elements
        if element.region == region.name
        and any(getattr(graph.operators[name].spec, "conditional", False) for name in element.operators)
    )
    shape = RegionShape(region.name, names, links, conditional)
    return RegionPlan(region.name, region.settings, region.members, region.starts, shape, region.group)
