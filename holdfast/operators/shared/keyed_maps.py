"""Operators whose state is a keyed map: what they share whatever they keep in it. `LivingLogic` is one that forgets keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.language.connectors import POSITION_FIELDS
from holdfast.language.operators.values import Ttl
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
from holdfast.operators.stored.parts import Known
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.compaction import Keep, advance
from holdfast.state.keyed.expiry import unexpired
from holdfast.state.keyed.keyed_map import Version, merge_versions_for
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import Segment


class MapLogic(KeyedLogic):
    """A keyed operator whose segments are those of one keyed map. It deals the map out over partitions and takes over
    what an earlier form of the operator stored; rows of one port travel as `prepared` makes them."""

    @property
    @abstractmethod
    def keyed_map(self) -> Aggregation:
        """What the map's rows look like."""

    # --- how rows arrive ---

    @property
    def key(self) -> Sequence[str]:
        """The input columns that decide where rows belong."""
        return self.keyed_map.by

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that matter at all."""
        return rows

    def prepared(self, rows: pa.Table) -> pa.Table:
        """What travels of some rows: with hashes."""
        return with_hashes(rows, self.key)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Any:
        mine = own_rows(self.present(rows[0]), self.key, partition, partitions)
        return [self.prepared(mine)] if mine.num_rows else None

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return split(self.prepared(self.present(rows)), partitions)

    def gather(self, shares: Sequence[Share]) -> Any:
        return [rows for _, rows in shares] or None

    # --- the map ---

    def advanced(
        self,
        segments: Segments,
        changed: pa.Table,
        place: Place,
        keep: Keep | None = None,
        keep_in_base: Keep | None = None,
    ) -> Segments:
        """The map after a step; `changed`: new state rows, `keep`, `keep_in_base`: what merging may leave out. To be called
        when the output is made: what fails must not leave a segment behind."""
        if not changed.num_rows:
            return segments
        where = (place.directory, place.prefix)
        return advance(segments, changed, self.keyed_map, *where, DEFAULT_BOUNDS, keep, keep_in_base)

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

    def known(self, meta: Any) -> Known:
        return Known(self.keyed_map)


def with_positions(schema: pa.Schema, stamped: bool) -> pa.Schema:
    """Columns of an output, with those of positions if somebody orders by them."""
    return pa.schema([*schema, *POSITION_FIELDS]) if stamped else schema


class TimedMapLogic(MapLogic):
    """Rows of one source travel, with the watermark at each: what ends follows from their positions."""

    @property
    @abstractmethod
    def time(self) -> Ttl | None:
        """How long keys live, and by which time; None: for ever."""

    def own(self, rows: PortRows, partition: int, partitions: int) -> lifetimes.Arrived | None:
        return lifetimes.own(rows, self.key, self.time, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return lifetimes.shares(port, rows, self.key, self.time, partitions)

    def gather(self, shares: Sequence[Share]) -> lifetimes.Arrived | None:
        return lifetimes.gather(shares, self.time)

    def at(self, meta: Any, now_us: int) -> Any:
        return lifetimes.clocked(self.time, meta, now_us)


class LivingLogic(TimedMapLogic):
    """Keys are forgotten by and by. `ttl`: how long they live; None: for ever."""

    aggregation: Aggregation
    ttl: Ttl | None

    @abstractmethod
    def lived(self, segments: Segments, marked: lifetimes.Marked) -> tuple[pa.Table, pa.Table]:
        """(output, new state rows) of some rows; columns of the output may be more than come out."""

    def counted(self, rows: int, output: int) -> Mapping[str, int]:
        """What a step of so many rows with so many of output adds to the counts."""
        return {}

    @property
    def keyed_map(self) -> Aggregation:
        return self.aggregation

    @property
    def time(self) -> Ttl | None:
        return self.ttl

    def apply(self, segments: Segments, meta: Any, arrived: lifetimes.Arrived, place: Place) -> Applied:
        marked = lifetimes.marked(arrived, self.ttl, meta)
        schema = self.outputs[0]
        if not marked.rows.num_rows:
            return Applied(segments, (schema.empty_table(),), marked.meta)
        made, changed = self.lived(segments, marked)
        output = made.select(schema.names).cast(schema)
        keep = None if self.ttl is None else unexpired(self.ttl.length_us, marked.mark)
        after = self.advanced(segments, changed, place, keep)
        return Applied(after, (output,), marked.meta, self.counted(marked.rows.num_rows, output.num_rows))

    def known(self, meta: Any) -> Known:
        return Known(self.keyed_map, ends_us=lifetimes.ended(self.ttl, meta or {}))
