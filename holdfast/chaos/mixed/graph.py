"""Random graphs of elements outside of regions, alone or around a region, and the ways rows take through them.

A set of rows is a bit mask. Every element looks at rows in a *frame* of its own: its lane 0 holds the rows of its own
source, and each way along which rows of some source arrive is a further lane. So a row that arrives along two ways is
two bits, and what a connection brings is its sender's mask, shifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from holdfast.chaos.shapes import LANES_MAX
from holdfast.ids import ConnectionId, ElementName, OperatorName, RegionName
from holdfast.protocol.accounts import Sinks
from holdfast.protocol.shape import Link, RegionShape


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection. `after`: how many of the sender's operators its rows have passed."""

    id: ConnectionId
    source: int
    target: int
    after: int
    shift: int
    is_link: bool
    """Both ends are in the region."""


@dataclass(frozen=True, slots=True)
class Element:
    """What a schedule knows of an element before it begins. Elements are numbered in topological order."""

    number: int
    name: ElementName
    in_region: bool
    first_row: int
    row_count: int
    """Of its own source; 0: it has none."""
    operators: tuple[OperatorName, ...]
    """With state; every row passes them in this order."""
    kept: frozenset[OperatorName]
    """Operators that store checkpoints of their own."""
    counts_late: bool
    """How many rows a slice of the source has is found out after the step."""
    sinks: tuple[tuple[OperatorName, int], ...]
    """With the number of operators before each."""
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    rows: int
    """All rows that can ever be here."""
    once: int
    """Those of them that come along no region: at most once."""
    own: int
    """Rows of its own source."""
    reach: Sinks
    reach_of: Mapping[OperatorName, Sinks]


@dataclass(frozen=True, slots=True)
class MixedGraph:
    elements: tuple[Element, ...]
    width: int
    """Bits of one lane."""
    region: RegionShape | None
    reach_of_wire: Mapping[ConnectionId, Sinks]
    plain_sinks: frozenset[OperatorName]
    """Behind no region and no operator with state, and reached by each row along one way."""

    @property
    def wires(self) -> list[Wire]:
        return [wire for element in self.elements for wire in element.outputs]


@dataclass(slots=True)
class _Draft:
    """An element while its graph is made up."""

    in_region: bool
    senders: list[int]
    row_count: int = 0
    operators: int = 0


def random_graph(rng: Random) -> MixedGraph:
    """One to five elements outside of regions; in more than half of all graphs with a region in between."""
    outside = rng.randint(1, 5)
    inside = rng.choice((1, 2, 2)) if rng.random() < 0.6 else 0
    before = rng.randint(0, outside)
    kinds = [False] * before + [True] * inside + [False] * (outside - before)
    drafts = [_draft(rng, kinds, number) for number in range(len(kinds))]
    made = _made(rng, drafts)
    return made if made is not None else random_graph(rng)


def _draft(rng: Random, kinds: list[bool], number: int) -> _Draft:
    in_region = kinds[number]
    earlier = [n for n in range(number) if not (in_region and kinds[n])]
    chosen = set(rng.sample(earlier, min(len(earlier), rng.choice((0, 1, 1, 1, 2)))))
    is_behind_region = in_region is False and number > 0 and kinds[number - 1]
    if (in_region and number and kinds[number - 1]) or is_behind_region:
        chosen.add(number - 1)  # regions are chains, and something leaves them
    is_start = in_region and not any(kinds[n] for n in chosen)
    has_source = not chosen or is_start or rng.random() < (0.6 if in_region else 0.2)
    operators = 0 if in_region else rng.choice((0, 0, 1, 1, 2))
    rows = rng.randint(6, 12) if in_region else rng.randint(3, 8)
    return _Draft(in_region, sorted(chosen), rows if has_source else 0, operators)


def _made(rng: Random, drafts: list[_Draft]) -> MixedGraph | None:
    """The graph, or None if a row would arrive along too many ways."""
    width = sum(draft.row_count for draft in drafts)
    wires = _wires(rng, drafts, width)
    names = [ElementName(f"{'r' if draft.in_region else 'e'}{n}") for n, draft in enumerate(drafts)]
    sinks = [_sinks(rng, draft, name, has_outputs=any(w.source == n for w in wires))
             for n, (draft, name) in enumerate(zip(drafts, names, strict=True))]  # fmt: skip
    lanes = _lanes(drafts, wires)
    if max(map(len, lanes)) > LANES_MAX:
        return None
    firsts = [sum(d.row_count for d in drafts[:n]) for n in range(len(drafts))]
    rows = _rows(drafts, wires, firsts, start=True)
    once = _rows(drafts, wires, firsts, start=False)
    reach, reach_of_wire = _reach(drafts, wires, sinks)
    elements = []
    for n, draft in enumerate(drafts):
        operators = tuple(OperatorName(f"{names[n]}.{k}") for k in range(draft.operators))
        outputs = tuple(w for w in wires if w.source == n)
        behind = {
            op: tuple(sorted({s for s, after in sinks[n] if after > k}
                             | {s for w in outputs if w.after > k for s in reach_of_wire[w.id]}))
            for k, op in enumerate(operators)
        }  # fmt: skip
        element = Element(
            n, names[n], draft.in_region, firsts[n], draft.row_count, operators,
            frozenset(op for op in operators if rng.random() < 0.6), rng.random() < 0.2, sinks[n],
            tuple(w for w in wires if w.target == n), outputs, rows[n], once[n], ((1 << draft.row_count) - 1) << firsts[n], reach[n], behind,
        )  # fmt: skip
        elements.append(element)
    plain = _plain(elements, lanes)
    return MixedGraph(tuple(elements), width, _shape(elements), reach_of_wire, plain)


def _wires(rng: Random, drafts: list[_Draft], width: int) -> list[Wire]:
    lane_counts: list[int] = []
    wires = []
    for n, draft in enumerate(drafts):
        lanes = 1
        for sender in draft.senders:
            operators = drafts[sender].operators
            after = operators if rng.random() < 0.7 else rng.randint(0, operators)
            is_link = draft.in_region and drafts[sender].in_region
            wires.append(Wire(ConnectionId(f"{sender}-{n}"), sender, n, after, width * lanes, is_link))
            lanes += lane_counts[sender]
        lane_counts.append(lanes)
    return wires


def _sinks(
    rng: Random, draft: _Draft, name: ElementName, *, has_outputs: bool
) -> tuple[tuple[OperatorName, int], ...]:
    count = rng.choice((0, 0, 0, 1)) if has_outputs else rng.choice((1, 1, 2))
    count = min(count, 1) if draft.in_region else count
    return tuple((OperatorName(f"{name}.s{k}"), rng.randint(0, draft.operators)) for k in range(count))


def _lanes(drafts: list[_Draft], wires: list[Wire]) -> list[list[int]]:
    """Per element, the source of each lane."""
    lanes: list[list[int]] = []
    for n in range(len(drafts)):
        lanes.append([n] + [source for w in wires if w.target == n for source in lanes[w.source]])
    return lanes


def _rows(drafts: list[_Draft], wires: list[Wire], firsts: list[int], *, start: bool) -> list[int]:
    """All rows of each element's frame; with `start` False without those that came along the region."""
    rows: list[int] = []
    for n, draft in enumerate(drafts):
        mask = ((1 << draft.row_count) - 1) << firsts[n]
        for wire in wires:
            if wire.target == n:
                mask |= rows[wire.source] << wire.shift
        rows.append(mask if start or not draft.in_region else 0)
    return rows


def _reach(
    drafts: list[_Draft], wires: list[Wire], sinks: list[tuple[tuple[OperatorName, int], ...]]
) -> tuple[dict[int, Sinks], dict[ConnectionId, Sinks]]:
    reach: dict[int, Sinks] = {}
    for n in reversed(range(len(drafts))):
        onwards = {sink for w in wires if w.source == n for sink in reach[w.target]}
        reach[n] = tuple(sorted(onwards | {sink for sink, _ in sinks[n]}))
    return reach, {w.id: reach[w.target] for w in wires}


def _plain(elements: list[Element], lanes: list[list[int]]) -> frozenset[OperatorName]:
    is_plain: list[bool] = []
    for element in elements:
        ways = [source for source in lanes[element.number] if elements[source].row_count]
        upstream = all(is_plain[w.source] and w.after == 0 for w in element.inputs)
        is_plain.append(upstream and not element.in_region and len(ways) == len(set(ways)))
    return frozenset(
        sink for element in elements if is_plain[element.number]
        for sink, after in element.sinks if after == 0
    )  # fmt: skip


def _shape(elements: list[Element]) -> RegionShape | None:
    names = tuple(element.name for element in elements if element.in_region)
    links = tuple(
        Link(wire.id, elements[wire.source].name, element.name)
        for element in elements for wire in element.inputs if wire.is_link
    )  # fmt: skip
    return RegionShape(RegionName("mixed"), names, links) if names else None
