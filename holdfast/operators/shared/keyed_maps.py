"""Operators whose state is a keyed map: what they share whatever they keep in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.language.connectors import POSITION_FIELDS
from holdfast.operators.shared import logic
from holdfast.operators.shared.logic import KeyedLogic, Place, PortRows, Segments, Share
from holdfast.operators.stored.parts import Known
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.keyed_map import Useful, advance, dealt_out
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS
from holdfast.state.keyed.row_evolution import evolved_sums
from holdfast.state.keyed.segment import Segment


@dataclass(frozen=True)
class MapLogic(KeyedLogic):
    """A keyed operator whose segments are those of one keyed map. It deals the map out over partitions and takes over
    what an earlier form of the operator stored; rows of one port travel as `prepared` makes them."""

    keyed_map: Aggregation
    """What the map's rows look like."""
    output: pa.Schema
    stamped: bool
    """The output carries positions."""

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.output, self.stamped),)

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
        return logic.with_hashes(rows, self.key)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Any:
        mine = logic.own_rows(self.present(rows[0]), self.key, partition, partitions)
        return [self.prepared(mine)] if mine.num_rows else None

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return logic.split(self.prepared(self.present(rows)), partitions)

    def gather(self, shares: Sequence[Share]) -> Any:
        return [rows for _, rows in shares] or None

    # --- the map ---

    def advanced(
        self, segments: Segments, changed: pa.Table, place: Place, useful: Useful | None = None
    ) -> Segments:
        """The map after a step; `changed`: new state rows. To be called when the output is made: what fails must not
        leave a segment behind."""
        return advance(segments, changed, self.keyed_map, place, useful, DEFAULT_BOUNDS)

    @property
    def chained(self) -> Aggregation:
        return self.keyed_map

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        return dealt_out(old, partition, partitions, self.keyed_map, place)

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return evolved_sums(table, self.keyed_map, segment.name)

    def known(self, meta: Any) -> Known:
        return Known(self.keyed_map)


def with_positions(schema: pa.Schema, stamped: bool) -> pa.Schema:
    """Columns of an output, with those of positions if somebody orders by them."""
    return pa.schema([*schema, *POSITION_FIELDS]) if stamped else schema
