"""What a failure may cost at each sink, why, and when its rows become visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.compiler.plan import Plan, RegionPlan
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
    return tuple(
        _guarantee(operator, operator.spec, region_of.get(operator.name))
        for operator in plan.graph.operators.values()
        if isinstance(operator.spec, SinkSpec)
    )


def _guarantee(operator: Operator, spec: SinkSpec, region: RegionPlan | None) -> SinkGuarantee:
    if region is None:
        ended = operator.annotations.autonomous
        reason = "autonomous: the region ends before it" if ended else "autonomous: no region reaches it"
        return SinkGuarantee(operator.name, "best effort", reason, "at once")
    reason = f"in region {region.name}; {spec.sink.reason}"
    if spec.sink.guarantee == "exactly-once":
        return SinkGuarantee(operator.name, "exactly-once", reason, epoch_delay(region.settings))
    return SinkGuarantee(operator.name, "at-least-once", reason, "at once")


def epoch_delay(settings: RegionSettings) -> str:
    """When rows that wait for an epoch can be seen."""
    match settings.trigger:
        case "periodic":
            return f"after each epoch, ≈ {settings.period_s:g} s"
        case "operator":
            return "after each epoch, when the source asks for one"
        case "manual":
            return "after each epoch, on demand"
