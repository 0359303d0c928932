"""The first row of each key passes; the arithmetic is in `state/keyed/expiry.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import Ttl
from holdfast.operators.shared import lifetimes
from holdfast.operators.shared.keyed_maps import LivingLogic, with_positions
from holdfast.operators.shared.lifetimes import Arrived
from holdfast.operators.shared.logic import Applied, Place, Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.compaction import advance
from holdfast.state.keyed.expiry import first_of_lives, remembering, unexpired
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS


@dataclass(frozen=True)
class Dedup(LivingLogic):
    """The state is a keyed map of the keys that were seen, with the times of the rows that passed if there is a
    lifetime. `stamped`: the output carries positions."""

    aggregation: Aggregation
    input: pa.Schema
    ttl: Ttl | None = None
    stamped: bool = False

    @staticmethod
    def plan(by: Sequence[str], ttl: Ttl | None, schema: pa.Schema, stamped: bool) -> Dedup:
        keys = Aggregation.plan(by, (), schema) if ttl is None else remembering(by, (), schema)
        return Dedup(keys, schema, ttl, stamped)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.input, self.stamped),)

    @property
    def keyed_map(self) -> Aggregation:
        return self.aggregation

    @property
    def lifetime(self) -> Ttl | None:
        return self.ttl

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        marked = lifetimes.marked(arrived, self.ttl, meta)
        schema = self.outputs[0]
        if not marked.rows.num_rows:
            return Applied(segments, (schema.empty_table(),), marked.meta)
        length = None if self.ttl is None else self.ttl.length_us
        passed, changed = first_of_lives(self.aggregation, segments, marked.rows, marked.marks, length)
        output = marked.rows.select(schema.names).take(pa.array(passed)).cast(schema)
        if changed.num_rows:
            keep = None if length is None else unexpired(length, marked.mark)
            segments = advance(
                segments, changed, self.aggregation, place.directory, place.prefix, DEFAULT_BOUNDS, keep
            )
        dropped = marked.rows.num_rows - len(passed)
        return Applied(segments, (output,), marked.meta, {"dropped": dropped} if dropped else {})
