"""Operators whose state is a keyed map: what they share whatever they keep in it.

`MapLogic` deals the map out over partitions and takes over what an earlier form of the operator stored. `LivingLogic`
is one that forgets keys; `RowWindows` is one whose windows are rows of a key in the order of their positions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.graph import Ttl
from holdfast.operators.shared import lifetimes
from holdfast.operators.shared.logic import (
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
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.compaction import advance
from holdfast.state.keyed.keyed_map import Version, merge_versions_for, sort_by_position
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import Segment


class MapLogic(KeyedLogic):
    """A keyed operator whose segments are those of one keyed map."""

    @property
    @abstractmethod
    def keyed_map(self) -> Aggregation:
        """What the map's rows look like."""

    @property
    def chained(self) -> Aggregation:
        return self.keyed_map

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        versions = [Version(segments) for segments in old]
        return merge_versions_for(
            partition, partitions, versions, self.keyed_map, place.directory, place.prefix
        ).segments

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return evolved_sums(table, self.keyed_map, segment.name)


def with_positions(schema: pa.Schema, stamped: bool) -> pa.Schema:
    """Columns of an output, with those of positions if somebody orders by them."""
    return pa.schema([*schema, *POSITION_FIELDS]) if stamped else schema


class LivingLogic(MapLogic):
    """Rows travel, not sums of them: where a life ends follows from the positions of rows."""

    @property
    @abstractmethod
    def lifetime(self) -> Ttl | None:
        """How long keys live; None: for ever."""

    def own(self, rows: PortRows, partition: int, partitions: int) -> lifetimes.Arrived | None:
        return lifetimes.own(rows[0], self.keyed_map.by, self.lifetime, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return lifetimes.shares(rows, self.keyed_map.by, self.lifetime, partitions)

    def gather(self, shares: Sequence[Share]) -> lifetimes.Arrived | None:
        return lifetimes.gather(shares, self.lifetime)

    def at(self, meta: Any, now_us: int) -> Any:
        return lifetimes.clocked(self.lifetime, meta, now_us)


class Stepped(Protocol):
    """What a step made of windows: results, the row that completed each, changed state rows."""

    @property
    def results(self) -> pa.Table: ...

    @property
    def completed_by(self) -> I64: ...

    @property
    def changed(self) -> pa.Table: ...


class RowWindows(MapLogic):
    """Rows with positions travel and are applied in their order. `stamped`: the output carries positions, a window's
    being that of the row that completed it."""

    by: tuple[str, ...]
    output: pa.Schema
    stamped: bool

    @property
    @abstractmethod
    def used(self) -> Sequence[str]:
        """Input columns that windows need."""

    @abstractmethod
    def stepped(self, segments: Segments, rows: pa.Table) -> Stepped:
        """One step over rows in the order of their positions."""

    def counted(self, rows: int) -> Mapping[str, int]:
        """What a step of so many rows adds to the counts."""
        return {}

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that belong to windows at all."""
        return rows

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(dict.fromkeys((*self.used, *POSITION_COLUMNS))),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.output, self.stamped),)

    def own(self, rows: PortRows, partition: int, partitions: int) -> list[pa.Table] | None:
        mine = own_rows(self.present(rows[0]), self.by, partition, partitions)
        return [mine] if mine.num_rows else None

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return split(with_hashes(self.present(rows), self.by), partitions)

    def gather(self, shares: Sequence[Share]) -> list[pa.Table] | None:
        return [rows for _, rows in shares] or None

    def apply(self, segments: Segments, meta: object, arrived: list[pa.Table], place: Place) -> Applied:
        rows = sort_by_position(pa.concat_tables(arrived), POSITION_COLUMNS)
        done = self.stepped(segments, rows)
        output = done.results
        if self.stamped:
            completing = rows.select(POSITION_COLUMNS).take(pa.array(done.completed_by))
            for name in POSITION_COLUMNS:
                output = output.append_column(name, completing.column(name))
        schema = self.outputs[0]
        output = output.select(schema.names).cast(schema)  # first: what fails must not leave a segment behind
        after = advance(segments, done.changed, self.keyed_map, place.directory, place.prefix, DEFAULT_BOUNDS)
        return Applied(after, (output,), counts=self.counted(rows.num_rows))
