"""Rows leave in the order of event time, as far as the watermark has passed. One partition does it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.operators.columns import time_type
from holdfast.language.operators.rows import SortSpec
from holdfast.language.operators.values import idle_text
from holdfast.operators.fingerprint import Fingerprint, columns_of
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Schemas, Timing, register
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.logic import Applied, Place, PortRows, Segments
from holdfast.operators.shared.timed import Arrived, Passage, TimedLogic, TimedPort
from holdfast.operators.stored.parts import Part
from holdfast.operators.stored.rows import StoredRows
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.row_evolution import evolved
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.waiting_rows import TIME, Waiting, in_order, kept, leave, waiting

HOME = 0
"""The partition that has all rows: the one that owns the hash of no key."""


@dataclass(frozen=True)
class Sort(TimedLogic):
    """`meta`: that of `TimedPort.passage`, "left": how many rows have left, "sources": [[number in the segments, name]].
    `stamp`: the number of this operator if the rows that leave carry positions: they are numbered in the order in which
    they leave."""

    port: TimedPort
    input: pa.Schema
    stamp: int | None = None

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.input, self.stamp is not None),)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        return self.port.own(rows, 0, partition, partitions) if partition == HOME else None

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return {HOME: self.port.shares(port, rows, partitions)[HOME]}

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        meta = meta or {}
        passage = self.port.passage(meta, arrived)
        fresh, late = self._in_time(arrived, passage)
        stored = self._renumbered([waiting(segment, passage.was) for segment in segments], meta)
        leaving, stay = leave([*stored, Waiting(in_order(fresh, POSITION_COLUMNS))], passage.now)
        rows = in_order(pa.concat_tables([fresh.slice(0, 0), *leaving]), POSITION_COLUMNS)
        output = self._output(rows, meta.get("left", 0))
        after = kept(stay, POSITION_COLUMNS, place)
        left = {"left": meta.get("left", 0) + rows.num_rows, "sources": self._numbers}
        return Applied(after, (output,), {**passage.meta, **left}, {"late": late} if late else {})

    def _in_time(self, arrived: Arrived, passage: Passage) -> tuple[pa.Table, int]:
        """(rows that may still leave in order, with their times; how many may not)."""
        rows, times = arrived.rows, self.port.times(arrived.rows)
        marks = self.port.marks_in(passage, arrived)
        rows = rows.select([*self.input.names, *POSITION_COLUMNS])
        rows = rows.cast(pa.schema([*self.input, *POSITION_FIELDS])).add_column(0, TIME, pa.array(times))
        in_time = times >= marks
        late = len(times) - int(in_time.sum())
        return (rows.filter(pa.array(in_time)) if late else rows), late

    @property
    def _numbers(self) -> list[list[Any]]:
        return sorted([number, name] for number, name in self.port.sources.items())

    def _renumbered(self, stored: list[Waiting], meta: Any) -> list[Waiting]:
        """What waits, with the source numbers of this run. Other numbers than before: all is written anew."""
        old = meta.get("sources", self._numbers)
        if old == self._numbers or not stored:
            return stored
        number_of = {name: number for number, name in self.port.sources.items()}
        table = pa.concat_tables([each.rows for each in stored])
        index = table.schema.get_field_index(POSITION_COLUMNS[0])
        numbers = table.column(index).to_numpy()
        renewed = np.full(len(numbers), -1, dtype=np.int32)  # of a source that is gone: before all others
        for number, name in old:
            renewed[numbers == number] = number_of.get(name, -1)
        table = table.set_column(index, table.schema.field(index), pa.array(renewed))
        return [Waiting(in_order(table, POSITION_COLUMNS))]

    def _output(self, rows: pa.Table, first: int) -> pa.Table:
        output = rows.select(self.input.names)
        if self.stamp is not None:
            count = rows.num_rows
            places = (np.full(count, self.stamp), np.zeros(count), np.arange(first, first + count))
            for field, values in zip(POSITION_FIELDS, places, strict=True):
                output = output.append_column(field, pa.array(values.astype(np.int64)).cast(field.type))
        return output.cast(self.outputs[0])

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        wanted = pa.schema([table.schema.field(TIME), *self.input, *POSITION_FIELDS])
        return table if table.schema.equals(wanted) else evolved(table, wanted, {}, segment.name)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        return tuple(segment for segments in old for segment in segments) if partition == HOME else ()


class StoredSort(StoredRows):
    """Rows that the watermark has passed stay in their segment until it is written anew."""

    def part_of(self, key: str, schema: pa.Schema) -> str:
        return "waiting"

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        mark = self.meta.get("watermark")
        return Part(name, "rows", schema, used_up=None if mark is None else (TIME, mark))


@register
class SortKind(KeyedKind[SortSpec]):
    spec = SortSpec
    stored = StoredSort
    makes_positions = True
    needs_positions = Ordering("sorts rows by event time", several=None)

    def schemas(self, op: OperatorOf[SortSpec], inputs: Schemas) -> list[pa.Schema]:
        time_type(inputs[0], op.spec.on, "Rows are sorted by")
        return [inputs[0]]

    def what(self, op: OperatorOf[SortSpec]) -> str:
        return f"in the order of {op.spec.on}{idle_text(op.spec.idle_us)}"

    def timing(self, op: OperatorOf[SortSpec], given: Sequence[Timing | None]) -> Timing:
        return Timing(op.spec.on, {op.name: 0})

    def fingerprint(self, op: OperatorOf[SortSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        return Fingerprint(self.name, {"on": op.spec.on}, {"rows": columns_of(inputs[0])})

    def logic(self, planned: Planned[SortSpec]) -> Sort:
        spec = planned.op.spec
        port = planned.timed_port(0, (), spec.on, spec.delays_us, spec.idle_us)
        return Sort(port, planned.inputs[0], planned.stamp)
