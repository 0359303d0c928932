"""The streams of one element: which leave it and for whom, how often each is read in a step, who is served by tasks, what they look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.ids import OperatorName
from holdfast.language.connectors import POSITION_FIELDS, Sink, Stamp
from holdfast.language.graph import SinkSpec, StreamRef
from holdfast.operators.kinds import kind_of
from holdfast.runtime.element.poison.poisoned_step import poison_of
from holdfast.runtime.engines.engine import Delivery


class ElementStreams:
    """What the plan says of them. It does not change."""

    def __init__(self, plan: Plan, element: ElementPlan) -> None:
        self._plan = plan
        self.inside = {op.name for op in element.operators}
        """Operators whose streams are made in the element."""
        self.leaving = tuple(dict.fromkeys(c.stream for c in element.outputs))
        self.timed = {
            c.stream
            for c in element.outputs
            if any(name in plan.timed.get(c.stream, ()) for name, _ in c.ports)
        }
        """Those that leave with times beside their rows."""
        self.near = near_outputs(plan, element)
        """Those that leave for operators in the driver only."""
        self.uses = uses_of(element, self.leaving)
        self.deliveries = {
            op.name: delivery_of(element, op.name, self.leaving)
            for op in element.operators
            if kind_of(op).role == "keyed"
        }

    def schema_of(self, stream: StreamRef) -> pa.Schema:
        """Columns of a stream as it travels, with positions if stamped."""
        schema = self._plan.schemas[stream]
        if stream in self._plan.stamped:
            for position in POSITION_FIELDS:
                schema = schema.append(position)
        return schema


@dataclass(frozen=True)
class OwnDelivery:
    """What happens to a keyed operator's output within its element."""

    request: Delivery
    names: Mapping[Sink, OperatorName]


def delivery_of(element: ElementPlan, name: OperatorName, out_streams: Sequence[StreamRef]) -> OwnDelivery:
    """Sinks that read nothing but this output may be served by the tasks that make it, if these are not expected to die."""
    may_die = any(op.name == name and poison_of(op) is not None for op in element.operators)
    stream = StreamRef(name)
    names: dict[Sink, OperatorName] = {}
    kept = {out.port for out in out_streams if out.operator == name}
    for op in element.operators:
        for port in op.inputs:
            spec = op.spec
            is_plain = isinstance(spec, SinkSpec) and spec.on_error == "fail" and not may_die
            if is_plain and port.streams == (stream,):
                assert isinstance(spec, SinkSpec)
                names[spec.sink] = op.name
            else:
                kept.update(read.port for read in port.streams if read.operator == name)
    return OwnDelivery(Delivery(tuple(names), frozenset(kept)), names)


def stamp_of(plan: Plan, stream: StreamRef) -> Stamp | None:
    """How a source stamps one of its streams, if somebody orders by it."""
    return Stamp(plan.source_index[stream.operator]) if stream in plan.stamped else None


def near_outputs(plan: Plan, element: ElementPlan) -> frozenset[StreamRef]:
    """Streams that leave the element and that only Python operators in the driver read."""
    operators = plan.graph.operators
    far = {
        connection.stream
        for connection in element.outputs
        if any(kind_of(operators[reader]).role != "hosted" for reader, _ in connection.ports)
    }
    return frozenset(connection.stream for connection in element.outputs) - far


def uses_of(element: ElementPlan, out_streams: Sequence[StreamRef]) -> dict[StreamRef, int]:
    """How many jobs of one step read each stream made in the element."""
    uses: dict[StreamRef, int] = dict.fromkeys(out_streams, 1)
    for op in element.operators:
        for port in op.inputs:
            for stream in port.streams:
                weight = op.outputs if kind_of(op).role == "stateless" else 1
                uses[stream] = uses.get(stream, 0) + weight
    return uses
