"""What the driver hosts: the ends of a graph, whose work is in their `Source` or `Sink`, and Python operators, which
`runtime/runs/hosted_run.py` runs."""

from __future__ import annotations

import pyarrow as pa

from holdfast.language.graph import HostedSpec, SinkSpec, SourceSpec
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kind import Kind, OperatorOf, Ports, Schemas, refuse, register


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

    def schemas(self, op: OperatorOf[SinkSpec], inputs: Schemas) -> list[pa.Schema]:
        op.spec.sink.check_columns(inputs[0])
        return []

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
