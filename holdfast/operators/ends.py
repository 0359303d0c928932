"""The ends of a graph: sources and sinks. What they do is in the `Source` or `Sink` they are told."""

from __future__ import annotations

import pyarrow as pa

from holdfast.language.graph import SinkSpec, SourceSpec
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kind import Kind, OperatorOf, Ports, Schemas, register


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
        return []

    def what(self, op: OperatorOf[SinkSpec]) -> str:
        return op.spec.sink.describe()

    def fingerprint(self, op: OperatorOf[SinkSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        return Fingerprint(self.name, {"class": type(op.spec.sink).__name__})
