"""Running aggregates: the state of a key is what was aggregated from all its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.keyed_maps import MapLogic, with_positions
from holdfast.operators.shared.logic import Applied, Place, Segments, with_hashes
from holdfast.state.aggregates.aggregation import Aggregation, partial
from holdfast.state.keyed.keyed_map import Version, apply_batch, apply_partial


@dataclass(frozen=True)
class RunningAggregate(MapLogic):
    """`emit="changes"`: sums of rows travel instead of rows, and the order of rows does not matter: functions that order
    keep positions in their sums. `emit="each"`: rows with positions travel and are applied in their order. `stamped`:
    the output carries positions."""

    aggregation: Aggregation
    emit: Literal["changes", "each"]
    output: pa.Schema
    stamped: bool = False

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        positions = POSITION_COLUMNS if self.emit == "each" or self.aggregation.ordered else ()
        return (tuple(dict.fromkeys((*self.aggregation.schema.names, *positions))),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.output, self.stamped),)

    @property
    def keyed_map(self) -> Aggregation:
        return self.aggregation

    def prepared(self, rows: pa.Table) -> pa.Table:
        if self.emit == "changes":
            return partial(self.aggregation, rows)
        return with_hashes(rows, self.aggregation.by)

    def apply(self, segments: Segments, meta: object, arrived: list[pa.Table], place: Place) -> Applied:
        version = Version(segments)
        if self.emit == "changes":
            version, output = apply_partial(version, arrived, self.aggregation, place.directory, place.prefix)
        else:
            version, output = apply_batch(
                version,
                pa.concat_tables(arrived),
                self.aggregation,
                place.directory,
                place.prefix,
                emit="each",
                order_by=POSITION_COLUMNS,
            )
        schema = self.outputs[0]
        return Applied(version.segments, (output.select(schema.names).cast(schema),))
