"""The first row of each key passes; the arithmetic is in `state/keyed/expiry.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.rows import DedupSpec, dedup_schema
from holdfast.language.operators.values import Ttl
from holdfast.operators.fingerprint import Fingerprint, key_of, keyed_frame
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Schemas, register
from holdfast.operators.shared.lifetimes import LivingLogic, Marked
from holdfast.operators.shared.logic import Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.expiry import first_of_lives, remembering


@dataclass(frozen=True)
class Dedup(LivingLogic):
    """The state is a keyed map of the keys that were seen, with the times of the rows that passed if there is a
    lifetime."""

    @staticmethod
    def plan(by: Sequence[str], ttl: Ttl | None, schema: pa.Schema, stamped: bool) -> Dedup:
        keys = Aggregation.plan(by, (), schema) if ttl is None else remembering(by, (), schema)
        return Dedup(keys, schema, stamped, ttl)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.output.names, *POSITION_COLUMNS),)

    def lived(self, segments: Segments, marked: Marked) -> tuple[pa.Table, pa.Table]:
        length = None if self.ttl is None else self.ttl.length_us
        passed, changed = first_of_lives(self.keyed_map, segments, marked.rows, marked.marks, length)
        return marked.rows.select(self.outputs[0].names).take(pa.array(passed)), changed

    def counted(self, rows: int, output: int) -> Mapping[str, int]:
        return {"dropped": rows - output} if rows > output else {}


@register
class DedupKind(KeyedKind[DedupSpec]):
    spec = DedupSpec
    keeps_positions = True
    needs_positions = Ordering(
        "lets the first row of each key pass",
        "Dedup each source by itself, or bring the rows into one order before: .sort(on='at', …).",
    )

    def schemas(self, op: OperatorOf[DedupSpec], inputs: Schemas) -> list[pa.Schema]:
        return [dedup_schema(inputs[0], op.spec)]

    def what(self, op: OperatorOf[DedupSpec]) -> str:
        lives = "" if op.spec.ttl is None else f", {op.spec.ttl}"
        return f"first row by {', '.join(op.spec.by)}{lives}"

    def fingerprint(self, op: OperatorOf[DedupSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        lifetime = None if op.spec.ttl is None else op.spec.ttl.on or "clock"
        return Fingerprint(self.name, keyed_frame(key_of(inputs[0], op.spec.by), lifetime=lifetime))

    def logic(self, planned: Planned[DedupSpec]) -> Dedup:
        spec = planned.op.spec
        ttl = None if spec.ttl is None else planned.lifetime(spec.ttl)
        return Dedup.plan(spec.by, ttl, planned.inputs[0], planned.stamped)
