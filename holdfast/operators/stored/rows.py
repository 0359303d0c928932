"""How a kind of operator has its stored rows read: into which parts they fall, how those are read and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.stored.parts import NOTHING, STATE_PART, Known, Part, keys_of
from holdfast.operators.stored.told_aggregations import Functions, functions_of, told_aggregation
from holdfast.operators.stored.views import Finished, OpenWindows, Stored, View
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.windows.time_windows import PANE, Windows


@dataclass(frozen=True)
class StoredRows:
    """The rows of an operator whose state is a keyed map, or of a kind that nobody here knows. `meta`: what it stored
    beside them. Kinds with other rows derive from it."""

    fingerprint: Fingerprint
    meta: Mapping[str, Any]

    def part_of(self, key: str, schema: pa.Schema) -> str:
        """The part that a segment belongs to, by its stored name and its columns."""
        return STATE_PART

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        """How to read segments of a part. `known`: the aggregation, if somebody has the topology."""
        if schema.names[0] != HASH_COLUMN:
            return Part(name, "rows", schema)
        return Part(name, "newest", schema, keys_of(schema))

    def view(self, part: Part, known: Known = NOTHING) -> View:
        """How the rows of a part are shown. Where nobody knows what stored columns mean, they are shown as they are."""
        aggregation = known.aggregation or told_aggregation(self.functions(), part.schema)
        if part.rule == "rows" or aggregation is None or not aggregation.state_schema.equals(part.schema):
            return Stored(part.schema)
        return Finished(aggregation, known.ends_us)

    def functions(self) -> Functions:
        """What is computed, by output."""
        return functions_of(self.fingerprint)


class RowsOfWindows(StoredRows):
    """Sums of panes are added up, and shown as windows that are not complete."""

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        if PANE not in schema.names:
            return super().part(name, schema, known)
        fits = known is not None and known.state_schema.equals(schema)
        aggregation = known if fits else told_aggregation(self.functions(), schema)
        if aggregation is None:  # a function of the user's own: nobody here knows how to add up
            return Part(name, "rows", schema)
        return Part(name, "sums", schema, keys_of(schema), aggregation)

    def view(self, part: Part, known: Known = NOTHING) -> View:
        if part.aggregation is None:
            return super().view(part, known)
        size, slide = self.fingerprint.frame["size_us"], self.fingerprint.frame["slide_us"]
        windows = Windows(size, slide, 0, part.aggregation)
        return OpenWindows(windows, self.meta.get("watermark"), known.time_type)
