"""Running aggregates that forget keys; the arithmetic is in `state/expiry.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.graph import Ttl
from holdfast.runtime.executor import lifetimes
from holdfast.runtime.executor.lifetimes import Arrived
from holdfast.runtime.executor.logic import Applied, KeyedLogic, Place, PortRows, Segments, Share
from holdfast.state.aggregates import Aggregation
from holdfast.state.compaction import advance
from holdfast.state.evolution import evolved_sums
from holdfast.state.expiry import SEEN, of_lives, unexpired
from holdfast.state.keyed_map import Version, merge_versions_for
from holdfast.state.merge_plan import DEFAULT_BOUNDS
from holdfast.state.segment import Segment


@dataclass(frozen=True)
class ExpiringAggregate(KeyedLogic):
    """Rows travel, not sums of them: where a life ends follows from the positions of rows. `aggregation` is one of
    `expiry.remembering`. `stamped`: the output carries positions."""

    aggregation: Aggregation
    ttl: Ttl
    emit: Literal["changes", "each"]
    output: pa.Schema
    stamped: bool = False

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        used = [name for name in self.aggregation.schema.names if name != SEEN]
        timed = self.ttl.on is not None
        positions = POSITION_COLUMNS if self.emit == "each" or self.aggregation.ordered or timed else ()
        return (tuple(dict.fromkeys((*used, *([self.ttl.on] if self.ttl.on else ()), *positions))),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (pa.schema([*self.output, *POSITION_FIELDS]) if self.stamped else self.output,)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        return lifetimes.own(rows[0], self.aggregation.by, self.ttl, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return lifetimes.shares(rows, self.aggregation.by, self.ttl, partitions)

    def gather(self, shares: Sequence[Share]) -> Arrived | None:
        return lifetimes.gather(shares, self.ttl)

    def at(self, meta: Any, now_us: int) -> Any:
        return lifetimes.clocked(self.ttl, meta, now_us)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        marked = lifetimes.marked(arrived, self.ttl, meta)
        schema = self.outputs[0]
        if not marked.rows.num_rows:
            return Applied(segments, (schema.empty_table(),), marked.meta)
        length = self.ttl.length_us
        output, changed = of_lives(
            self.aggregation, segments, marked.rows, marked.marks, length, each=self.emit == "each"
        )
        if self.stamped:
            for name in POSITION_COLUMNS:
                output = output.append_column(name, marked.rows.column(name))
        output = output.select(schema.names).cast(schema)  # first: what fails must not leave a segment behind
        keep = unexpired(length, marked.mark)
        after = advance(
            segments, changed, self.aggregation, place.directory, place.prefix, DEFAULT_BOUNDS, keep
        )
        return Applied(after, (output,), marked.meta)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        versions = [Version(segments) for segments in old]
        return merge_versions_for(
            partition, partitions, versions, self.aggregation, place.directory, place.prefix
        ).segments

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return evolved_sums(table, self.aggregation, segment.name)
