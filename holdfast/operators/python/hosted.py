"""The kind of Python operators that are hosted in the driver. `runtime/runs/hosted_run.py` runs them."""

from __future__ import annotations

import pyarrow as pa

from holdfast.language.graph import HostedSpec
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kind import Kind, OperatorOf, Ports, Schemas, register


@register
class HostedKind(Kind[HostedSpec]):
    spec = HostedSpec
    role = "hosted"
    ports = Ports(most=None, control=True)
    makes_positions = True

    def schemas(self, op: OperatorOf[HostedSpec], inputs: Schemas) -> list[pa.Schema]:
        return list(op.spec.schemas)

    def what(self, op: OperatorOf[HostedSpec]) -> str:
        return op.spec.label

    def fingerprint(self, op: OperatorOf[HostedSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        ports = tuple("control" if port.control else "data" for port in op.inputs)
        return Fingerprint(self.name, {"inputs": ports, "outputs": op.outputs})
