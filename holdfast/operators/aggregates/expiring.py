"""Running aggregates that forget keys; the arithmetic is in `state/keyed/expiry.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import Ttl
from holdfast.operators.shared import lifetimes
from holdfast.operators.shared.keyed_maps import LivingLogic, with_positions
from holdfast.operators.shared.lifetimes import Arrived
from holdfast.operators.shared.logic import Applied, Place, Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.compaction import advance
from holdfast.state.keyed.expiry import SEEN, of_lives, unexpired
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS


@dataclass(frozen=True)
class ExpiringAggregate(LivingLogic):
    """`aggregation` is one of `expiry.remembering`. `stamped`: the output carries positions."""

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
        return (with_positions(self.output, self.stamped),)

    @property
    def keyed_map(self) -> Aggregation:
        return self.aggregation

    @property
    def lifetime(self) -> Ttl:
        return self.ttl

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
