"""The persistent connections of a plan: who writes and reads each log, and whether every row is in it once."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.compiler.eventual import is_eventual
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName, RegionName
from holdfast.language.connectors import Sink, Source
from holdfast.language.graph import SinkSpec, SourceSpec
from holdfast.language.operators.stateless import ReplayableSpec
from holdfast.operators.kinds import kind_of


@dataclass(frozen=True, slots=True)
class Persisted:
    """A persistent connection of a plan."""

    name: OperatorName
    """Of the stream, and of the source that reads it."""
    into: OperatorName
    sink: Sink
    source: Source
    writing: RegionName | None
    reading: RegionName | None
    recovers: bool
    """What writes into it goes on behind the last rows in the log, whatever happens."""

    @property
    def is_exact(self) -> bool:
        """Whether every row is in the log once."""
        return self.writing is not None or self.recovers


def persisted_in(plan: Plan) -> tuple[Persisted, ...]:
    """The persistent connections of a plan, in the order they were written."""
    regions = {member: region.name for region in plan.regions for member in region.members}
    element_of = {op.name: element for element in plan.elements for op in element.operators}
    found = []
    for op in plan.graph.operators.values():
        if isinstance(op.spec, SinkSpec) and op.spec.sink.leads_to is not None:
            name = OperatorName(op.spec.sink.leads_to)
            source = plan.graph.operators[name].spec
            assert isinstance(source, SourceSpec)
            element = element_of[op.name]
            recovers = recovers_from_log(element) or any(map(is_eventual, element.operators))
            found.append(
                Persisted(
                    name,
                    op.name,
                    op.spec.sink,
                    source.source,
                    regions.get(op.name),
                    regions.get(name),
                    recovers,
                )
            )
    return tuple(found)


def check_outages(plan: Plan) -> None:
    """TopologyError if a stream is persisted for outages only that has to be in its log all the time."""
    element_of = {op.name: element for element in plan.elements for op in element.operators}
    groups = {region.name: region.group for region in plan.regions}
    for each in persisted_in(plan):
        if not each.sink.only_outages:
            continue
        if each.writing is not None or not recovers_from_log(element_of[each.into]):
            raise TopologyError(
                f"The stream {each.name!r} is persisted for outages only, and what is before it could not make its rows again: that takes"
                " sources that can be read again and operators without state, outside of regions, with no other end.",
                cure=f'Write .persist("{each.name}") without when="outage": all its rows go into the log then.',
            )
        if each.reading is not None and groups[each.reading] is not None:
            raise TopologyError(
                f"The stream {each.name!r} is persisted for outages only, and who reads it is in a region of mode independent.",
                cure='Choose another mode for the region, or leave when="outage" out.',
            )


def recovers_from_log(element: ElementPlan) -> bool:
    """Whether an element needs no checkpoint, because the log that it writes tells where to go on: outside of regions, from sources that
    can be read again, through operators without state, into one log and nowhere else."""
    if element.region is not None or element.inputs or element.outputs:
        return False
    sinks = [op.spec.sink for op in element.operators if isinstance(op.spec, SinkSpec)]
    sources = [op.spec.source for op in element.operators if isinstance(op.spec, SourceSpec)]
    others = [op for op in element.operators if not isinstance(op.spec, SinkSpec | SourceSpec)]
    return (
        len(sinks) == 1
        and sinks[0].leads_to is not None
        and bool(sources)
        and all(source.replayable for source in sources)
        and all(kind_of(op).role == "stateless" and not isinstance(op.spec, ReplayableSpec) for op in others)
    )
