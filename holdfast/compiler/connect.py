"""Fourth pass: connections between elements, and the shape of each region for the protocol."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.compiler.fusion import Element
from holdfast.compiler.plan import ConnectionPlan, RegionPlan
from holdfast.compiler.regions import Region, Regions
from holdfast.compiler.traverse import Edge, edges
from holdfast.ids import ConnectionId, ElementName, OperatorName, RegionName
from holdfast.language.graph import Graph, StreamRef
from holdfast.protocol.shape import Link, RegionShape

Key = tuple[StreamRef, ElementName, bool, RegionName | None]


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
        )
        for key, where in ports.items()
    )


def _key(edge: Edge, target: ElementName, regions: Regions) -> Key:
    return edge.stream, target, edge.control, regions.along(edge)


def _new_id(key: Key, taken: set[str]) -> ConnectionId:
    """`orders.0--totals`, safe in file names; a number behind it where names would make two alike."""
    stream, target, control, _ = key
    base = f"{stream.operator}.{stream.port}--{target}" + ("--control" if control else "")
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}--{number}"
    taken.add(found)
    return ConnectionId(found)


def plan_region(
    region: Region, elements: Iterable[Element], connections: Iterable[ConnectionPlan]
) -> RegionPlan:
    """A region with the elements and consistent links the protocol works on."""
    names = tuple(element.name for element in elements if element.region == region.name)
    links = tuple(Link(c.id, c.source, c.target, c.control) for c in connections if c.region == region.name)
    shape = RegionShape(region.name, names, links)
    return RegionPlan(region.name, region.settings, region.members, region.starts, shape)
