"""Running aggregates that forget keys; the arithmetic is in `state/keyed/expiry.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.values import Ttl
from holdfast.operators.shared.keyed_maps import LivingLogic, with_positions
from holdfast.operators.shared.lifetimes import Marked
from holdfast.operators.shared.logic import Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.expiry import SEEN, of_lives


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

    def lived(self, segments: Segments, marked: Marked) -> tuple[pa.Table, pa.Table]:
        each, length = self.emit == "each", self.ttl.length_us
        output, changed = of_lives(self.aggregation, segments, marked.rows, marked.marks, length, each=each)
        if self.stamped:
            for name in POSITION_COLUMNS:
                output = output.append_column(name, marked.rows.column(name))
        return output, changed
