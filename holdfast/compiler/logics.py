"""From an operator of the plan to what its tasks run."""

from __future__ import annotations

from typing import Any

from holdfast.compiler.order import find_origins, origins_at
from holdfast.compiler.plan import Plan
from holdfast.language.graph import Operator, StreamRef
from holdfast.operators.kind import Planned
from holdfast.operators.kinds import keyed_kind
from holdfast.operators.shared.logic import KeyedLogic


def logic_of(op: Operator, plan: Plan) -> KeyedLogic:
    """The logic of a keyed operator."""
    return keyed_kind(op).logic(planned(op, plan))


def planned(op: Operator, plan: Plan) -> Planned[Any]:
    """What the passes found out about an operator."""
    found = find_origins(plan.graph)
    origins = [origins_at(port, found) or () for port in op.inputs]
    return Planned(
        op,
        inputs=tuple(plan.schemas[port.streams[0]] for port in op.inputs),
        output=plan.schemas[StreamRef(op.name)],
        stamped=StreamRef(op.name) in plan.stamped,
        number=plan.source_index.get(op.name),
        origins=tuple({plan.source_index[name]: name for name in names} for names in origins),
    )
