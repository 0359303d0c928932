"""Running aggregates: the state of a key is what was aggregated from all its rows, or from those since it was forgotten;
and aggregates over windows of its rows, whose arithmetic is in `state/windows/{count,run,delta}_windows.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.lifetimes import LivingLogic, Marked
from holdfast.operators.shared.logic import Applied, Place, PortRows, Segments, by_position, own_rows
from holdfast.state.aggregates.aggregation import combine, finish, partial, summed_up
from holdfast.state.keyed.expiry import SEEN, of_lives
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.missed_rows import Missed, go_on, rows_had
from holdfast.state.windows.row_windows import RowWindows, Stepped

TOGETHER_ROWS, TOGETHER_BYTES = 1 << 22, 1 << 28
"""More is not held to be summed up together."""


@dataclass(frozen=True)
class SummedAggregate(MapLogic):
    """One output row per key and step. Sums of rows travel instead of rows, and the order of rows does not matter:
    functions that order keep positions in their sums."""

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(self.keyed_map.schema.names),)

    def prepared(self, rows: pa.Table) -> pa.Table:
        return partial(self.keyed_map, rows)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Any:
        """Rows of all partitions may be summed up for less than it costs to find one's own."""
        sums = summed_up(self.keyed_map, rows[0])
        if sums is None:
            return super().own(rows, partition, partitions)
        mine = own_rows(sums, self.key, partition, partitions)
        return [mine] if mine.num_rows else None

    def own_of(self, tables: Mapping[int, Iterator[pa.Table]], partition: int, partitions: int) -> Any:
        """Table by table, so that not all rows are there at once. Rows whose keys hardly repeat are summed up many together."""
        arrived: list[pa.Table] = []
        waiting: list[pa.Table] = []
        for rows in tables[0]:
            sums = summed_up(self.keyed_map, rows)
            mine = own_rows(rows if sums is None else sums, self.key, partition, partitions)
            (waiting if sums is None else arrived).append(mine)
            if sum(table.num_rows for table in waiting) >= TOGETHER_ROWS or (
                sum(table.nbytes for table in waiting) >= TOGETHER_BYTES
            ):
                arrived.append(self.prepared(pa.concat_tables(waiting)))
                waiting = []
        if waiting:
            arrived.append(self.prepared(pa.concat_tables(waiting)))
        return [sums for sums in arrived if sums.num_rows] or None

    def apply(self, segments: Segments, meta: object, arrived: list[pa.Table], place: Place) -> Applied:
        keys = arrived[0] if len(arrived) == 1 else combine(self.keyed_map, arrived)
        changed = find_rows(segments, keys, self.keyed_map).combined()
        output = finish(self.keyed_map, changed).select(self.output.names).cast(self.output)
        return Applied(self.advanced(segments, changed, place), (output,))


@dataclass(frozen=True)
class RowAggregate(LivingLogic):
    """Keys may be forgotten, or an output row may come for each row: rows travel and are applied in their order. With a
    lifetime, `keyed_map` is one of `expiry.remembering`."""

    emit: Literal["changes", "each"]

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        used = [name for name in self.keyed_map.schema.names if name != SEEN]
        on = () if self.ttl is None or self.ttl.on is None else (self.ttl.on,)
        positions = POSITION_COLUMNS if self.emit == "each" or self.keyed_map.ordered or on else ()
        return (tuple(dict.fromkeys((*used, *on, *positions))),)

    def lived(self, segments: Segments, marked: Marked) -> tuple[pa.Table, pa.Table]:
        length = None if self.ttl is None else self.ttl.length_us
        each = self.emit == "each"
        output, changed = of_lives(self.keyed_map, segments, marked.rows, marked.marks, length, each=each)
        if self.stamped:
            for name in POSITION_COLUMNS:
                output = output.append_column(name, marked.rows.column(name))
        return output, changed


TAKEN = "_rows"
"""Under this name the operator counts the rows it took, for itself: how fast they come tells how many a failure cost."""


@dataclass(frozen=True)
class RowWindowAggregate(MapLogic):
    """Rows with positions travel and are applied in their order. What a window gives has the position of the row that
    completed it."""

    by: tuple[str, ...]
    windows: RowWindows

    @classmethod
    def over(cls, windows: RowWindows, output: pa.Schema, stamped: bool, by: tuple[str, ...]) -> Self:
        return cls(windows.map, output, stamped, by, windows)

    @property
    def key(self) -> Sequence[str]:
        return self.by

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(dict.fromkeys((*self.windows.used, *POSITION_COLUMNS))),)

    def present(self, rows: pa.Table) -> pa.Table:
        return self.windows.present(rows)

    def apply(self, segments: Segments, meta: Any, arrived: list[pa.Table], place: Place) -> Applied:
        rows = by_position(pa.concat_tables(arrived))
        done = self.windows.step(segments, rows)
        output = done.results
        if self.stamped:
            completing = rows.select(POSITION_COLUMNS).take(pa.array(done.completed_by))
            for name in POSITION_COLUMNS:
                output = output.append_column(name, completing.column(name))
        schema = self.outputs[0]
        output = output.select(schema.names).cast(schema)
        after = self.advanced(segments, done.changed, place)
        more = self.further_outputs(rows, done, after, meta)
        return Applied(after, (output, *more), counts=self.counted(rows.num_rows))

    def further_outputs(
        self, rows: pa.Table, done: Stepped, after: Segments, meta: Any
    ) -> tuple[pa.Table, ...]:
        """What goes to further outputs."""
        return ()

    def counted(self, rows: int) -> Mapping[str, int]:
        """What a step with this number of rows adds to the counts."""
        return {}

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return self.windows.evolved(table, segment.name)


@dataclass(frozen=True)
class CountedAggregate(RowWindowAggregate):
    """The last rows of a key after every n-th of its rows: windows that become stale where rows are missed."""

    windows: CountWindows

    def counted(self, rows: int) -> Mapping[str, int]:
        return {TAKEN: rows}

    def had(self, meta: Any, counts: Mapping[str, int]) -> tuple[int, ...]:
        return (counts.get(TAKEN, 0),)

    def without_stale(
        self, partitions: Sequence[Segments], meta: Any, missed: Sequence[int], places: Sequence[Place]
    ) -> tuple[tuple[Segments, ...], int]:
        # The keys' own numbers, not TAKEN: they contain what was missed earlier.
        of_all = Missed(sum(rows_had(self.windows, segments) for segments in partitions), missed[0])
        found = [
            go_on(self.windows, segments, of_all, place)
            for segments, place in zip(partitions, places, strict=True)
        ]
        return tuple(after for after, _ in found), sum(gone for _, gone in found)
