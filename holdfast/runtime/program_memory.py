"""How the program of a run differs from that of the run before, as far as it can be told; and what to remember of it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from holdfast.checkpoint.stored_names import PROGRAM
from holdfast.compiler.description import Description, describe, differences
from holdfast.compiler.plan import Plan
from holdfast.language.graph import Graph
from holdfast.runtime.telling.beginning_events import ProgramChanged
from holdfast.runtime.telling.events import TopologyChanged
from holdfast.store.base import Store


def compare_program(
    store: Store | None, graph: Graph, plan: Plan, announced: Iterable[TopologyChanged]
) -> ProgramChanged | None:
    """What is another than in the run before, which is remembered no more: from now on this program is. None: nothing is, or
    nothing is known of one before."""
    if store is None:
        return None
    now = describe(graph, {member: region.name for region in plan.regions for member in region.members})
    raw, data = store.load_record(PROGRAM), json.dumps(now.to_json(), sort_keys=True).encode()
    if raw == data:
        return None
    store.save_record(PROGRAM, data)
    if raw is None:
        return None
    known = {name for change in announced for name in change.changed}
    said = differences(Description.from_json(json.loads(raw)), now, known)
    return ProgramChanged(tuple(said)) if said else None
