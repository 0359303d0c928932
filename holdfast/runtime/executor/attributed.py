"""Aggregates over windows of a key's rows that end by what is in the rows, as one partition computes them. The
arithmetic is in `state/run_windows.py` and `state/delta_windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.runtime.executor.logic import (
    Applied,
    KeyedLogic,
    Place,
    PortRows,
    Segments,
    Share,
    own_rows,
    split,
    with_hashes,
)
from holdfast.state.compaction import advance
from holdfast.state.delta_windows import DeltaWindows
from holdfast.state.evolution import evolved_sums
from holdfast.state.keyed_map import Version, merge_versions_for, sort_by_position
from holdfast.state.opaque import bounds_for
from holdfast.state.run_windows import RunWindows
from holdfast.state.segment import Segment


@dataclass(frozen=True)
class AttributedAggregate(KeyedLogic):
    """Rows with positions travel and are applied in their order. `stamped`: the output carries positions, a window's
    being that of the row that completed it."""

    windows: RunWindows | DeltaWindows
    by: tuple[str, ...]
    output: pa.Schema
    stamped: bool = False

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(dict.fromkeys((*self.windows.used, *POSITION_COLUMNS))),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (pa.schema([*self.output, *POSITION_FIELDS]) if self.stamped else self.output,)

    def own(self, rows: PortRows, partition: int, partitions: int) -> list[pa.Table] | None:
        mine = own_rows(self.windows.present(rows[0]), self.by, partition, partitions)
        return [mine] if mine.num_rows else None

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return split(with_hashes(self.windows.present(rows), self.by), partitions)

    def gather(self, shares: Sequence[Share]) -> list[pa.Table] | None:
        return [rows for _, rows in shares] or None

    def apply(self, segments: Segments, meta: object, arrived: list[pa.Table], place: Place) -> Applied:
        rows = sort_by_position(pa.concat_tables(arrived), POSITION_COLUMNS)
        stepped = self.windows.step(segments, rows)
        output = stepped.results
        if self.stamped:
            completing = rows.select(POSITION_COLUMNS).take(pa.array(stepped.completed_by))
            for name in POSITION_COLUMNS:
                output = output.append_column(name, completing.column(name))
        schema = self.outputs[0]
        output = output.select(schema.names).cast(schema)  # first: what fails must not leave a segment behind
        bounds = bounds_for(segments, stepped.changed)
        after = advance(segments, stepped.changed, self.windows.map, place.directory, place.prefix, bounds)
        return Applied(after, (output,))

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        versions = [Version(segments) for segments in old]
        return merge_versions_for(
            partition, partitions, versions, self.windows.map, place.directory, place.prefix
        ).segments

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        if isinstance(self.windows, DeltaWindows):  # aggregates that are new would need rows that are gone
            return table
        return evolved_sums(table, self.windows.aggregation, segment.name)
