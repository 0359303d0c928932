"""The plan of the newest run as a record of its store, for those who draw it. For people: a run never fails because of it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from holdfast.compiler.explain import guarantees
from holdfast.compiler.plan import Plan
from holdfast.compiler.traverse import edges
from holdfast.errors import DamagedError, HoldfastError
from holdfast.operators.kinds import kind_of
from holdfast.store.base import Store

PLAN = "plan"


def remember_plan(store: Store | None, plan: Plan) -> None:
    """Replaces what the run before left, if it is another."""
    if store is None:
        return
    data = json.dumps(plan_data(plan)).encode()
    with suppress(HoldfastError):
        if _known(store) != data:
            store.save_record(PLAN, data)


def _known(store: Store) -> bytes | None:
    """What is there; None if there is nothing, or if it is damaged: then it is written anew."""
    try:
        return store.load_record(PLAN)
    except DamagedError:
        return None


def plan_data(plan: Plan) -> dict[str, Any]:
    """Regions, elements with their operators, connections, and what each sink guarantees and why. Plain data, in the plan's order."""
    return {
        "topology": plan.graph.name,
        "regions": [
            {
                "name": region.name,
                "mode": region.settings.mode,
                "trigger": region.settings.trigger,
                "period_s": region.settings.period_s,
            }
            for region in plan.regions
        ],
        "elements": [
            {
                "name": element.name,
                "region": element.region,
                "operators": [
                    {"name": op.name, "kind": op.kind, "what": kind_of(op).what(op)}
                    for op in element.operators
                ],
            }
            for element in plan.elements
        ],
        "connections": [
            {"source": c.source, "target": c.target, "control": c.control} for c in plan.connections
        ],
        "edges": [
            {"source": edge.source, "target": edge.target, "control": edge.control}
            for edge in edges(plan.graph)
        ],
        "sinks": [
            {"sink": each.sink, "guarantee": each.guarantee, "visible": each.visible, "reason": each.reason}
            for each in guarantees(plan)
        ],
    }
