"""Running aggregates: the state of a key is what was aggregated from all its rows, or from those since it was forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.lifetimes import LivingLogic, Marked
from holdfast.operators.shared.logic import Applied, Place, Segments
from holdfast.state.aggregates.aggregation import combine, finish, partial
from holdfast.state.keyed.expiry import SEEN, of_lives
from holdfast.state.keyed.lookup import find_rows


@dataclass(frozen=True)
class SummedAggregate(MapLogic):
    """One output row per key and step. Sums of rows travel instead of rows, and the order of rows does not matter:
    functions that order keep positions in their sums."""

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(self.keyed_map.schema.names),)

    def prepared(self, rows: pa.Table) -> pa.Table:
        return partial(self.keyed_map, rows)

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
