"""What a failure may cost at each sink, why, and when its rows become visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.compiler.plan import Plan, RegionPlan
from holdfast.compiler.traverse import sinks_behind
from holdfast.ids import OperatorName
from holdfast.language.graph import Operator, RegionSettings, SinkSpec

Guarantee = Literal["exactly-once", "at-least-once", "best effort"]


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """One sink's promise, in words for people."""

    sink: OperatorName
    guarantee: Guarantee
    reason: str
    visible: str


def guarantees(plan: Plan) -> tuple[SinkGuarantee, ...]:
    """The guarantee of every sink, in the order they were written."""
    region_of = {member: region for region in plan.regions for member in region.members}
    behind = sinks_behind(plan.graph)
    return tuple(
        _guarantee(plan, operator, operator.spec, region_of.get(operator.name), behind)
        for operator in plan.graph.operators.values()
        if isinstance(operator.spec, SinkSpec)
    )


Behind = Mapping[OperatorName, tuple[OperatorName, ...]]
"""The sinks behind each operator."""


def _guarantee(
    plan: Plan, operator: Operator, spec: SinkSpec, region: RegionPlan | None, behind: Behind
) -> SinkGuarantee:
    if region is None:
        return SinkGuarantee(operator.name, "best effort", _alone(plan, operator, behind), "at once")
    reason = f"in region {region.name}; {spec.sink.reason}"
    ports = _best_effort_ports(plan, operator.name, region, behind)
    if ports:
        reason += f"; but rows that enter by {', '.join(ports)} are best effort"
    if spec.sink.guarantee == "exactly-once":
        return SinkGuarantee(operator.name, "exactly-once", reason, epoch_delay(region.settings))
    return SinkGuarantee(operator.name, "at-least-once", reason, "at once")


def _alone(plan: Plan, sink: Operator, behind: Behind) -> str:
    """Why a sink outside of regions has what it has."""
    before = [r.name for r in plan.regions if any(sink.name in behind[member] for member in r.members)]
    if not before:
        return "autonomous: no region reaches it; rows come at most once, those lost are counted"
    names = " and ".join(f"region {name}" for name in before)
    return (
        f"autonomous: {names} ends before it; rows of it may come again after a reset, those lost are counted"
    )


def _best_effort_ports(plan: Plan, sink: OperatorName, region: RegionPlan, behind: Behind) -> list[str]:
    """Ports before a sink at which rows enter its region from outside."""
    regions = {element.name: element.region for element in plan.elements}
    return [
        f"port {port} of {name}"
        for c in plan.connections
        if regions[c.target] == region.name and regions[c.source] != region.name
        for name, port in c.ports
        if sink in behind[name]
    ]


def epoch_delay(settings: RegionSettings) -> str:
    """When rows that wait for an epoch can be seen."""
    match settings.trigger:
        case "periodic":
            return f"after each epoch, ≈ {settings.period_s:g} s"
        case "operator":
            return "after each epoch, when the source asks for one"
        case "manual":
            return "after each epoch, on demand"
