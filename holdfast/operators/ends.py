"""What the driver hosts: the ends of a graph, whose work is in their `Source` or `Sink`, and Python operators, which
`runtime/runs/hosted/hosted_run.py` runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.types as pt

from holdfast.ids import OperatorName
from holdfast.language.graph import HostedSpec, SinkSpec, SourceSpec
from holdfast.language.hosted import ERRORS
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kind import Kind, OperatorOf, Ports, Schemas, Timing, refuse, register


@register
class SourceKind(Kind[SourceSpec]):
    spec = SourceSpec
    role = "source"
    ports = Ports(0, 0, "has inputs", "Sources begin a graph.")
    makes_positions = True

    def schemas(self, op: OperatorOf[SourceSpec], inputs: Schemas) -> list[pa.Schema]:
        malformed = op.spec.source.malformed_schema()
        return [op.spec.source.schema(), *([malformed] if malformed is not None else [])]

    def what(self, op: OperatorOf[SourceSpec]) -> str:
        return op.spec.source.describe()

    def fingerprint(self, op: OperatorOf[SourceSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        return Fingerprint(self.name, {"class": type(op.spec.source).__name__})


@register
class SinkKind(Kind[SinkSpec]):
    spec = SinkSpec
    role = "sink"

    def takes_positions(self, op: OperatorOf[SinkSpec]) -> bool:
        return op.spec.sink.wants_positions

    def schemas(self, op: OperatorOf[SinkSpec], inputs: Schemas) -> list[pa.Schema]:
        op.spec.sink.check_columns(inputs[0])
        return [ERRORS] if op.spec.on_error == "stream" else []

    def what(self, op: OperatorOf[SinkSpec]) -> str:
        return op.spec.sink.describe()

    def fingerprint(self, op: OperatorOf[SinkSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        return Fingerprint(self.name, {"class": type(op.spec.sink).__name__})


@register
class HostedKind(Kind[HostedSpec]):
    spec = HostedSpec
    role = "hosted"
    ports = Ports(most=None, control=True)
    makes_positions = True

    def schemas(self, op: OperatorOf[HostedSpec], inputs: Schemas) -> list[pa.Schema]:
        return list(op.spec.ports)

    def timings(self, op: OperatorOf[HostedSpec], given: Sequence[Timing | None]) -> list[Timing | None]:
        """It makes rows of rows it has seen: their watermark is that of its input, which travels beside them. What they have
        in the column of the event time may be any time."""
        known = [timing for port, timing in zip(op.inputs, given, strict=True) if not port.control]
        if op.spec.untimed or not known or None in known:
            return [None] * op.outputs
        found = {(timing.column, timing.offset_us) for timing in known if timing is not None}
        made = [_handed_on(op.name, schema, found) for schema in op.spec.schemas]
        return [*made, *[None] * (op.outputs - len(made))]

    def untimed(self, op: OperatorOf[HostedSpec]) -> str:
        several = sum(not port.control for port in op.inputs) > 1
        return op.spec.untimed or ("has an input without event time" if several else "")

    def takes_positions(self, op: OperatorOf[HostedSpec]) -> bool:
        return True

    def check(self, op: OperatorOf[HostedSpec]) -> None:
        if op.inputs and not op.spec.processes:
            raise refuse(
                op,
                "has inputs, but neither process(row, port) nor process_batch(table, port)",
                "Define one of them, or give it no inputs: topology.operator(…, []).",
            )

    def begins(self, op: OperatorOf[HostedSpec]) -> bool:
        return bool(op.spec.threads) and not op.inputs

    def what(self, op: OperatorOf[HostedSpec]) -> str:
        threads = op.spec.threads
        return op.spec.label + (f", {threads} thread{'s' if threads > 1 else ''}" if threads else "")

    def fingerprint(self, op: OperatorOf[HostedSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        ports = tuple("control" if port.control else "data" for port in op.inputs)
        return Fingerprint(self.name, {"inputs": ports, "outputs": len(op.spec.schemas)})


def _handed_on(name: OperatorName, schema: pa.Schema, found: Collection[tuple[str | None, int]]) -> Timing:
    """The event time of an output. `found`: the columns of the inputs, and what must be added to them."""
    kept = [(column, us) for column, us in found if column in schema.names]
    if len(kept) != 1 or not pt.is_timestamp(schema.field(kept[0][0]).type):
        return Timing(None, {name: 0}, tells=False)
    return Timing(kept[0][0], {name: 0}, tells=False, offset_us=kept[0][1])
