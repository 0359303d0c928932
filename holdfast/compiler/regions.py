"""Second pass: which operators belong to which region.

A region is what can be reached from the operators marked `.consistent()`. It ends where `.autonomous()` was said, and
regions that meet are one region. An operator reached along any port belongs to the region; its other ports are
autonomous ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from holdfast.compiler.traverse import Edge, edges, edges_from, edges_into, reachable
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName, RegionName
from holdfast.language.graph import Graph, HostedSpec, RegionSettings, SourceSpec
from holdfast.language.operators.stateless import ReplayableSpec

Reach = tuple[OperatorName, frozenset[OperatorName]]
"""A marked operator and all it reaches, itself included."""


@dataclass(frozen=True, slots=True)
class Region:
    """Members in graph order. `starts`: marked operators that no stream of the region leads into."""

    name: RegionName
    settings: RegionSettings
    members: tuple[OperatorName, ...]
    starts: tuple[OperatorName, ...]
    group: RegionName | None = None
    """The region as the user wrote it, if this is one element of it that has epochs of its own: mode `independent`."""


@dataclass(frozen=True, slots=True)
class Regions:
    """All regions of a graph. Operators that are not in `of` are autonomous."""

    regions: tuple[Region, ...]
    of: Mapping[OperatorName, RegionName]

    def preserves(self, edge: Edge) -> bool:
        """True if the edge ends at an element of a region in mode `independent`, and begins at another one of it or outside of
        regions: what goes along it can be had again."""
        group: dict[RegionName | None, RegionName | None] = {
            region.name: region.group for region in self.regions
        }
        source, target = (self.of.get(name) for name in (edge.source, edge.target))
        if group.get(target) is None or source == target:
            return False
        return source is None or (group[source] == group[target] and not edge.autonomous)

    def along(self, edge: Edge) -> RegionName | None:
        """The region whose markers travel along the edge; None: the edge is autonomous or crosses a border."""
        region = self.of.get(edge.source)
        return region if region == self.of.get(edge.target) and not edge.autonomous else None


def find_regions(graph: Graph) -> Regions:
    """Find the regions by reachability and refuse what the protocol could not keep consistent."""
    found = edges(graph)
    merged = merge(reach_of_marks(graph, found))
    regions = tuple(_region(graph, found, [mark for mark, _ in group], group) for group in merged)
    check_names_differ(regions)
    result = Regions(regions, {member: region.name for region in regions for member in region.members})
    check_ports(graph, result, found)
    for region in regions:
        check_starts(graph, region)
        if region.settings.mode == "independent":
            check_independent(graph, region, found)
    return result


def reach_of_marks(graph: Graph, found: tuple[Edge, ...]) -> list[Reach]:
    """For every marked operator, what it reaches without passing `.autonomous()`."""
    leaving = edges_from(found)

    def follow(edge: Edge) -> bool:
        return not edge.autonomous and not graph.operators[edge.target].annotations.autonomous

    marked = [name for name, op in graph.operators.items() if op.annotations.consistent is not None]
    return [(name, reachable(name, leaving, follow)) for name in marked]


def merge(reaches: Iterable[Reach]) -> list[list[Reach]]:
    """Group what has a member in common."""
    groups: list[list[Reach]] = []
    for reach in reaches:
        meets = [group for group in groups if any(members & reach[1] for _, members in group)]
        groups = [group for group in groups if group not in meets]
        groups.append([*(each for group in meets for each in group), reach])
    return groups


def _region(graph: Graph, found: tuple[Edge, ...], marks: list[OperatorName], group: list[Reach]) -> Region:
    together = frozenset[OperatorName]().union(*(members for _, members in group))
    members = tuple(name for name in graph.operators if name in together)
    entering = edges_into(e for e in found if e.source in together and not e.control and not e.autonomous)
    starts = tuple(name for name in members if name in marks and not entering.get(name))
    settings = agreed_settings(graph, marks)
    name = RegionName(settings.name or (starts or members)[0])
    return Region(name, replace(settings, name=name), members, starts)


def agreed_settings(graph: Graph, marks: list[OperatorName]) -> RegionSettings:
    """The one setting of all marks of a region; a name may be left out in some of them."""
    given = {mark: graph.operators[mark].annotations.consistent or RegionSettings() for mark in marks}
    named = {mark: settings.name for mark, settings in given.items() if settings.name is not None}
    if len(set(named.values())) > 1:
        said = ", ".join(f"{mark!r} says name={name!r}" for mark, name in named.items())
        raise TopologyError(
            f"Regions that meet have different names: {said}.",
            cure="Give them one name, or keep them apart with .autonomous() before they meet.",
        )
    first, *others = given.items()
    for mark, settings in others:
        differing = [
            f.name
            for f in fields(RegionSettings)
            if f.name != "name" and getattr(settings, f.name) != getattr(first[1], f.name)
        ]
        if differing:
            said = ", ".join(
                f"{key} is {getattr(first[1], key)} at {first[0]!r} and {getattr(settings, key)} at {mark!r}"
                for key in differing
            )
            raise TopologyError(
                f"Regions that meet have different settings: {said}.",
                cure="Give the same settings to each .consistent(…), or keep the regions apart with .autonomous().",
            )
    return replace(first[1], name=next(iter(named.values()), None))


def check_names_differ(regions: tuple[Region, ...]) -> None:
    """Two regions that do not meet have two names."""
    names = [region.name for region in regions]
    for region in regions:
        if names.count(region.name) > 1:
            starts = [start for each in regions if each.name == region.name for start in each.starts]
            raise TopologyError(
                f"Two regions that never meet are called {region.name!r}; they start at {', '.join(map(repr, starts))}.",
                cure="Give each .consistent(name=…) its own name.",
            )


def check_ports(graph: Graph, regions: Regions, found: tuple[Edge, ...]) -> None:
    """Streams that meet at one port are all consistent or all autonomous."""
    for name, arriving in edges_into(found).items():
        for port in range(len(graph.operators[name].inputs)):
            here = [edge for edge in arriving if edge.port == port]
            inside = [str(edge.stream) for edge in here if regions.along(edge) is not None]
            outside = [str(edge.stream) for edge in here if regions.along(edge) is None]
            if inside and outside:
                raise TopologyError(
                    f"Port {port} of {graph.operators[name].kind} {name!r} mixes consistent streams"
                    f" ({', '.join(inside)}) and autonomous ones ({', '.join(outside)}).",
                    cure="Mark the sources of the autonomous streams .consistent() too, end the region before the port"
                    " with .autonomous() on the others, or use different ports of a Python operator.",
                )


def check_starts(graph: Graph, region: Region) -> None:
    """A region begins at operators that can replay; one that triggers epochs itself begins at exactly one."""
    if not region.starts:
        raise TopologyError(
            f"Region {region.name!r} has no start: everything marked .consistent() lies on a cycle of it.",
            cure="Put .consistent(…) right behind topology.source(…).",
        )
    for start in region.starts:
        operator = graph.operators[start]
        if isinstance(operator.spec, HostedSpec) and operator.spec.threads and not operator.inputs:
            if operator.spec.replayable:
                continue
            raise TopologyError(
                f"Region {region.name!r} starts at {start!r}, and a {operator.spec.label} cannot replay rows.",
                cure="If from any state that it had its threads make the same rows again, say replayable = True in the"
                " class; else leave this part autonomous.",
            )
        if isinstance(operator.spec, ReplayableSpec):
            continue
        if not isinstance(operator.spec, SourceSpec):
            raise TopologyError(
                f"Region {region.name!r} starts at {operator.kind} {start!r}, which cannot replay rows.",
                cure="Put .consistent(…) right behind topology.source(…), so that the region begins at the source.",
            )
        if not operator.spec.source.replayable:
            raise TopologyError(
                f"Region {region.name!r} starts at {start!r}, and a {type(operator.spec.source).__name__} cannot replay rows.",
                cure="Keep what it receives in a log, hf.Preserved(source, 'path of the log'); put .replayable(name=…) behind it"
                " and begin there; use a source that can (files, Beacon, a list); or leave this part autonomous.",
            )
    if region.settings.trigger == "operator" and len(region.starts) != 1:
        raise TopologyError(
            f"Region {region.name!r} has trigger='operator' and {len(region.starts)} starts:"
            f" {', '.join(map(repr, region.starts))}.",
            cure="Use period=… for a region with several starts, or keep the parts separate with .autonomous().",
        )


def can_read_again(graph: Graph, operator: OperatorName) -> bool:
    """Whether all rows that reach an operator come from where they can be had again: whoever lets it wait loses nothing."""
    into, todo = edges_into(edges(graph)), [operator]
    for name in todo:  # grows meanwhile
        spec = graph.operators[name].spec
        if isinstance(spec, SourceSpec) and not spec.source.replayable:
            return False
        if isinstance(spec, HostedSpec) and spec.threads and not (into.get(name) or spec.replayable):
            return False
        before = [] if isinstance(spec, ReplayableSpec) else [edge.source for edge in into.get(name, ())]
        todo += [each for each in before if each not in todo]
    return True


def check_independent(graph: Graph, region: Region, found: tuple[Edge, ...]) -> None:
    """Elements that restart alone must do again what they did: no cycles, and nothing that comes by itself."""
    cure = "Use mode='async', 'token' or 'drain'."
    members = set(region.members)
    leaving = edges_from(found)
    for edge in found:
        inside = edge.control and edge.source in members and edge.target in members
        if inside and edge.source in reachable(edge.target, leaving, lambda _: True):
            raise TopologyError(
                f"Region {region.name!r} has a cycle, through the control port of {edge.target!r}, and mode='independent'.",
                cure=cure,
            )
    for name in members:
        spec = graph.operators[name].spec
        if isinstance(spec, HostedSpec) and (spec.threads or spec.conditional):
            what = "threads of its own" if spec.threads else "may_checkpoint()"
            raise TopologyError(
                f"Operator {name!r} has {what}, and region {region.name!r} has mode='independent', in which it could not do its"
                " steps again.",
                cure=cure,
            )
    if region.settings.trigger != "periodic":
        raise TopologyError(
            f"Region {region.name!r} has mode='independent', in which each element has its own epochs, and"
            f" trigger={region.settings.trigger!r}.",
            cure=f"Give period=…, or another mode. {cure}",
        )
