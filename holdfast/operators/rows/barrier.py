"""The k-th rows of several inputs leave together; the arithmetic is in `state/joins/barriers.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.rows import BarrierSpec, Names, barrier_names, barrier_schema
from holdfast.operators.fingerprint import Fingerprint, columns_of, keyed_frame
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Ports, Schemas, register
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.logic import Applied, Place, PortRows, Segments, Share, by_position, own_rows
from holdfast.operators.stored.parts import NOTHING, Known, Part
from holdfast.operators.stored.rows import StoredRows
from holdfast.operators.stored.views import SimpleView, View, unique
from holdfast.state.aggregates.aggregation import single
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Bools
from holdfast.state.joins.barriers import Matched, collecting, in_chunks, match, some_wait
from holdfast.state.keyed.keyed_map import Useful

HOME = 0
"""The partition that has all rows where there are no keys."""


@dataclass(frozen=True)
class Barrier(MapLogic):
    """Rows travel with positions. `meta`, without keys: {"rows": how many came by each port}. `stamp`: the number of
    the first input's source, if what leaves carries the positions of the first input's rows."""

    by: tuple[str, ...]
    inputs: tuple[pa.Schema, ...]
    names: tuple[Names, ...]
    stamp: int | None = None

    @staticmethod
    def plan(
        by: tuple[str, ...], inputs: Sequence[pa.Schema], output: pa.Schema, stamp: int | None
    ) -> Barrier:
        rows = collecting(by, inputs)
        return Barrier(rows, output, stamp is not None, by, tuple(inputs), barrier_names(inputs, by), stamp)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return tuple((*schema.names, *POSITION_COLUMNS) for schema in self.inputs)

    @property
    def key(self) -> Sequence[str]:
        return self.by

    def own(self, rows: PortRows, partition: int, partitions: int) -> dict[int, pa.Table] | None:
        if not self.by and partition != HOME:
            return None
        mine = {port: own_rows(table, self.by, partition, partitions) for port, table in rows.items()}
        return {port: table for port, table in mine.items() if table.num_rows} or None

    def gather(self, shares: Sequence[Share]) -> dict[int, pa.Table] | None:
        ports = {port for port, _ in shares}
        return {p: pa.concat_tables([rows for port, rows in shares if port == p]) for p in ports} or None

    def apply(self, segments: Segments, meta: Any, arrived: dict[int, pa.Table], place: Place) -> Applied:
        if not self.by:
            arrived, meta = self._numbered(arrived, meta)
        matched = match(self.keyed_map, segments, arrived)
        output = self._output(matched)  # first: what fails must not leave a segment behind
        after = self.advanced(segments, matched.changed, place, Useful(self._waits, in_base=True))
        return Applied(after, (output,), meta)

    def _numbered(self, arrived: dict[int, pa.Table], meta: Any) -> tuple[dict[int, pa.Table], Any]:
        counts = list((meta or {}).get("rows", [0] * len(self.inputs)))
        numbered = {}
        for port, rows in arrived.items():
            numbered[port] = in_chunks(by_position(rows), counts[port])
            counts[port] += rows.num_rows
        return numbered, {"rows": counts}

    def _waits(self, table: pa.Table) -> Bools:
        return some_wait(self.keyed_map, table)

    def _output(self, matched: Matched) -> pa.Table:
        """In the order of the first input's positions."""
        ordinals, numbers = matched.positions
        order = pa.array(np.lexsort((numbers, ordinals)))
        columns = [
            rows.field(name).take(order)
            for rows, names in zip(matched.rows, self.names, strict=True)
            for name, _ in names
        ]
        if self.stamp is not None:
            source = pa.array(np.full(len(ordinals), self.stamp))
            columns += [source, pa.array(ordinals).take(order), pa.array(numbers).take(order)]
        schema = self.outputs[0]
        return pa.table(columns, names=schema.names).cast(schema)


@dataclass(frozen=True)
class WaitingRows(SimpleView):
    """Per key the rows of each input that wait for those of the others."""

    stored: pa.Schema

    @property
    def _lists(self) -> list[str]:
        return [n for n in self.stored.names if n.startswith("__hf___hf_whole") and n.endswith(".value")]

    def prepare(self, rows: pa.Table) -> pa.Table:
        waits = np.zeros(rows.num_rows, dtype=np.bool_)
        for name in self._lists:
            waits |= arrays.lengths(single(rows.column(name))) > 0
        return rows.filter(pa.array(waits))

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        keys = [name for name in self.stored.names if not name.startswith("__hf_")]
        names = unique([*keys, *(f"input_{number}" for number in range(len(self._lists)))])
        return rows.select([*keys, *self._lists]).rename_columns(names), None


class StoredBarrier(StoredRows):
    def view(self, part: Part, known: Known = NOTHING) -> View:
        return WaitingRows(part.schema)


@register
class BarrierKind(KeyedKind[BarrierSpec]):
    spec = BarrierSpec
    ports = Ports(2, None, "has not two data ports or more", "Write a.zip(b).")
    stored = StoredBarrier
    needs_positions = Ordering(
        "puts rows side by side", "Bring the rows of each input into one order before: .sort(on='at', …)."
    )

    def schemas(self, op: OperatorOf[BarrierSpec], inputs: Schemas) -> list[pa.Schema]:
        return [barrier_schema(inputs, op.spec)]

    def carries(self, op: OperatorOf[BarrierSpec]) -> bool:
        return not op.spec.by  # without keys rows leave in the order of the first input

    def what(self, op: OperatorOf[BarrierSpec]) -> str:
        by = f", by {', '.join(op.spec.by)}" if op.spec.by else ""
        return f"{len(op.inputs)} inputs row by row{by}"

    def fingerprint(self, op: OperatorOf[BarrierSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        rows = {f"input {number}": columns_of(schema) for number, schema in enumerate(inputs, 1)}
        return Fingerprint(self.name, keyed_frame(op.spec.by), rows)

    def logic(self, planned: Planned[BarrierSpec]) -> Barrier:
        number = next(iter(planned.origins[0])) if planned.stamped else None
        return Barrier.plan(planned.op.spec.by, planned.inputs, planned.output, number)
