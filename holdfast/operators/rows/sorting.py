"""Rows leave in the order of event time, as far as the watermark has passed. One partition does it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.operators.columns import key_fields, time_type
from holdfast.language.operators.rows import SortSpec
from holdfast.language.operators.values import idle_text
from holdfast.operators.fingerprint import Fingerprint, columns_of, key_of, keyed_frame
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Schemas, Timing, register
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.logic import Applied, Place, PortRows, Segments, longs, own_rows
from holdfast.operators.shared.timed import Arrived, Passage, TimedLogic, TimedPort, left_out
from holdfast.operators.stored.parts import Part
from holdfast.operators.stored.rows import StoredRows
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.keyed.row_evolution import evolved
from holdfast.state.keyed.segment import Segment, open_segment
from holdfast.state.windows.waiting_rows import TIME, Waiting, in_order, kept, leave, waiting

HOME = 0
"""The partition that has all rows: the one that owns the hash of no key."""


@dataclass(frozen=True)
class Sort(TimedLogic):
    """`meta`: that of `TimedPort.passage`, "below": rows before this time have left, "left": how many have, "sources":
    [[number in the segments, name]].
    `stamp`: the number of this operator if the rows that leave carry positions: they are numbered in the order in which
    they leave; those of keys by their time, then by where they came from."""

    port: TimedPort
    input: pa.Schema
    stamp: int | None = None

    @property
    def _by_key(self) -> bool:
        return bool(self.port.by)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.input, self.stamp is not None),)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        if not self._by_key and partition != HOME:
            return None
        return self.port.own(rows, 0, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        shares = self.port.shares(port, rows, partitions)
        return shares if self._by_key else {HOME: shares[HOME]}

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        meta = meta or {}
        passage = self.port.passage(meta, arrived)
        fresh, late = self._in_time(arrived, passage)
        # Before there was "below", rows with the watermark's own time had not left.
        was, now = meta.get("below", passage.was), self._below(passage.now)
        stored = self._renumbered([waiting(segment, was) for segment in segments], meta)
        leaving, stay = leave([*stored, Waiting(in_order(fresh, POSITION_COLUMNS))], now)
        rows = in_order(pa.concat_tables([fresh.slice(0, 0), *leaving]), POSITION_COLUMNS)
        output = self._output(rows, meta.get("left", 0))
        after = kept(stay, POSITION_COLUMNS, place)
        later = {**passage.meta, "sources": self._numbers, "below": now}
        if not self._by_key:
            later["left"] = meta.get("left", 0) + rows.num_rows
        return Applied(after, (output,), later, left_out(late, arrived))

    def _below(self, mark: int | None) -> int | None:
        """Rows before this have left when the watermark is `mark`. What has its time is complete, but among several sources
        another such row might come that belongs before it."""
        return mark if mark is None or len(self.port.sources) > 1 else mark + 1

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
            if self._by_key:
                places = (np.full(count, self.stamp), longs(rows, TIME), _place(rows))
            else:
                places = (np.full(count, self.stamp), np.zeros(count), np.arange(first, first + count))
            for field, values in zip(POSITION_FIELDS, places, strict=True):
                output = output.append_column(field, pa.array(values.astype(np.int64)).cast(field.type))
        return output.cast(self.outputs[0])

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        wanted = pa.schema([table.schema.field(TIME), *self.input, *POSITION_FIELDS])
        return table if table.schema.equals(wanted) else evolved(table, wanted, {}, segment.name)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        every = tuple(segment for segments in old for segment in segments)
        if not self._by_key:
            return every if partition == HOME else ()
        tables = [open_segment(segment.path) for segment in every]
        mine = [
            own_rows(table, self.port.by, partition, partitions).drop_columns([HASH_COLUMN])
            for table in tables
        ]
        found = [table for table in mine if table.num_rows]
        return (place.write(in_order(pa.concat_tables(found), POSITION_COLUMNS)),) if found else ()


def _place(rows: pa.Table) -> I64:
    """Where rows came from, as one number that tells those of one time apart."""
    source, ordinal, row = (longs(rows, name) for name in POSITION_COLUMNS)
    return (((source << 20) + ordinal) << 40) + row


class StoredSort(StoredRows):
    """Rows that the watermark has passed stay in their segment until it is written anew."""

    def part_of(self, key: str, schema: pa.Schema) -> str:
        return "waiting"

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        below = self.meta.get("below", self.meta.get("watermark"))
        return Part(name, "rows", schema, used_up=None if below is None else (TIME, below))


@register
class SortKind(KeyedKind[SortSpec]):
    spec = SortSpec
    stored = StoredSort
    makes_positions = True
    needs_positions = Ordering("sorts rows by event time", several=None)

    def schemas(self, op: OperatorOf[SortSpec], inputs: Schemas) -> list[pa.Schema]:
        time_type(inputs[0], op.spec.on, "Rows are sorted by")
        key_fields(inputs[0], op.spec.by)
        return [inputs[0]]

    def what(self, op: OperatorOf[SortSpec]) -> str:
        keys = f", by {', '.join(op.spec.by)}" if op.spec.by else ""
        return f"in the order of {op.spec.on}{keys}{idle_text(op.spec.idle_us)}"

    def timing(self, op: OperatorOf[SortSpec], given: Sequence[Timing | None]) -> Timing:
        return Timing(op.spec.on, {op.name: 0})

    def fingerprint(self, op: OperatorOf[SortSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        frame = (
            {"on": op.spec.on}
            if not op.spec.by
            else keyed_frame(key_of(inputs[0], op.spec.by), on=op.spec.on)
        )
        return Fingerprint(self.name, frame, {"rows": columns_of(inputs[0])})

    def logic(self, planned: Planned[SortSpec]) -> Sort:
        spec = planned.op.spec
        port = planned.timed_port(0, spec.by, spec.on, spec.delays_us, spec.idle_us)
        return Sort(port, planned.inputs[0], planned.stamp)
