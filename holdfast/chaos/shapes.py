"""Random region shapes, and the lanes rows take through them.

A *lane* is one way from a source to an element. Rows of a lane arrive in source order, so how many of them an element
has seen says exactly which ones: the state of a simulated operator is one number per lane, and any loss or doubling
shows as a batch that does not begin where the lane stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from holdfast.ids import ConnectionId, ElementName, RegionName
from holdfast.protocol.shape import Link, RegionShape

LANES_MAX = 6
"""Diamonds in a row double the lanes; more than this only costs time."""


@dataclass(frozen=True, slots=True)
class Lane:
    """`link` is None for an element's own source; otherwise `upstream` is the lane number in the sending element."""

    source: ElementName
    link: ConnectionId | None
    upstream: int
    control: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """A region with its finite input.

    rows: how many rows the source inside an element has; elements without a source are not named.
    lanes: per element, data lanes first (own source before links), control lanes last.
    lane_of: which lane of the receiving element a batch on (link, lane of the sender) belongs to.
    """

    region: RegionShape
    rows: Mapping[ElementName, int]
    lanes: Mapping[ElementName, tuple[Lane, ...]]
    lane_of: Mapping[tuple[ConnectionId, int], int]


def scene(region: RegionShape, rows: Mapping[ElementName, int]) -> Scene:
    """Work out the lanes of a region."""
    lanes: dict[ElementName, list[Lane]] = {}
    for element in region.elements:
        own = [Lane(element, None, 0, False)] if element in rows else []
        lanes[element] = own + _arriving(region, element, lanes, control=False)
    passing = {element: list(found) for element, found in lanes.items()}
    for element in region.elements:
        lanes[element] = lanes[element] + _arriving(region, element, passing, control=True)
    lane_of = {
        (lane.link, lane.upstream): number
        for found in lanes.values()
        for number, lane in enumerate(found)
        if lane.link is not None
    }
    return Scene(region, rows, {element: tuple(found) for element, found in lanes.items()}, lane_of)


def _arriving(
    region: RegionShape, element: ElementName, passing: Mapping[ElementName, list[Lane]], *, control: bool
) -> list[Lane]:
    """Lanes that reach `element` over its data or control links. What a control port receives goes no further."""
    return [
        Lane(lane.source, link.id, number, control)
        for link in region.links
        if link.target == element and link.control is control
        for number, lane in enumerate(passing[link.source])
    ]


# --- random shapes ----------------------------------------------------------------------------------------------------

# Data edges, control edges, elements with a fused source besides the starts. Elements are numbered in topological order.
NAMED: Mapping[str, tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], tuple[int, ...]]] = {
    "chain": (4, ((0, 1), (1, 2), (2, 3)), (), (2,)),
    "diamond": (5, ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4)), (), (1,)),
    "two starts": (3, ((0, 2), (1, 2)), (), ()),
    "figure 3": (5, ((0, 2), (1, 2), (2, 3), (3, 4)), ((3, 2),), ()),
    "cycle to a start": (4, ((0, 2), (1, 2), (2, 3)), ((3, 0),), ()),
    "control from aside": (4, ((0, 2), (2, 3)), ((1, 2), (1, 0)), ()),
    "cycle and fused source": (3, ((0, 1), (1, 2)), ((2, 1),), (1,)),
}


def random_scene(rng: Random) -> Scene:
    """At least 3 elements and 2 sources; half of the time one of the named shapes."""
    if rng.random() < 0.5:
        count, data, control, fused = NAMED[rng.choice(tuple(NAMED))]
    else:
        count, data, control, fused = _random_edges(rng)
    region = _region(count, data, control)
    with_source = {*region.starts(), *(region.elements[n] for n in fused)}
    rows = {element: rng.randint(3, 9) for element in region.elements if element in with_source}
    made = scene(region, rows)
    if len(rows) >= 2 and max(len(found) for found in made.lanes.values()) <= LANES_MAX:
        return made
    return random_scene(rng)


def _random_edges(
    rng: Random,
) -> tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
    count = rng.randint(3, 5)
    data = set()
    for target in range(1, count):
        for _ in range(rng.choice((0, 1, 1, 2))):
            data.add((rng.randrange(target), target))
    control = {(rng.randrange(count), rng.randrange(count)) for _ in range(rng.choice((0, 0, 1, 1, 2)))}
    fused = tuple(n for n in range(count) if rng.random() < 0.25)
    return count, tuple(sorted(data)), tuple(sorted(control)), fused


def with_points(given: Scene, rng: Random) -> Scene:
    """Some elements can be pinned at certain points of their input only. Not those with control inputs: they could wait for
    rows of an element that holds still."""
    region = given.region
    barred = {link.target for link in region.links if link.control}
    may = [e for e in region.elements if e not in barred]
    return replace(given, region=replace(region, conditional=frozenset(e for e in may if rng.random() < 0.4)))


def _region(
    count: int, data: tuple[tuple[int, int], ...], control: tuple[tuple[int, int], ...]
) -> RegionShape:
    elements = tuple(ElementName(f"e{n}") for n in range(count))
    links = [Link(ConnectionId(f"e{a}-e{b}"), elements[a], elements[b]) for a, b in data]
    links += [Link(ConnectionId(f"e{a}~e{b}"), elements[a], elements[b], control=True) for a, b in control]
    return RegionShape(RegionName("sim"), elements, tuple(links))
