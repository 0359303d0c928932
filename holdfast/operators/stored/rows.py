"""How a kind of operator has its stored rows read: into which parts they fall, how those are read and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.stored.parts import STATE_PART, Part, keys_of
from holdfast.operators.stored.told_aggregations import Functions, functions_of, told_aggregation
from holdfast.operators.stored.variables_view import Variables
from holdfast.operators.stored.views import UTC, Finished, OpenWindows, Stored, View
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.windows.time_windows import PANE, Windows


@dataclass(frozen=True)
class Known:
    """What only the topology tells; all of it may be missing."""

    aggregation: Aggregation | None = None
    time_type: pa.DataType = UTC
    """Of event times."""
    ends_us: tuple[int, int] | None = None
    """Lifetime, and the time up to which keys have ended."""
    variables: Variables | None = None


NOTHING_KNOWN = Known()


class StoredRows:
    """Of operators whose state is a keyed map, and of kinds that nobody here knows. `meta`: what the operator stored
    beside its rows, {} if nothing."""

    def part_of(self, key: str, schema: pa.Schema, fingerprint: Fingerprint) -> str:
        """The part that a segment belongs to, by its stored name and its columns."""
        return STATE_PART

    def part(
        self, name: str, schema: pa.Schema, fingerprint: Fingerprint, meta: Any, known: Aggregation | None
    ) -> Part:
        """How to read segments of a part. `known`: the aggregation, if somebody has the topology."""
        if schema.names[0] != HASH_COLUMN:
            return Part(name, "rows", schema)
        return Part(name, "newest", schema, keys_of(schema))

    def view(self, part: Part, fingerprint: Fingerprint, meta: Any, known: Known = NOTHING_KNOWN) -> View:
        """How the rows of a part are shown. Where nobody knows what stored columns mean, they are shown as they are."""
        aggregation = known.aggregation or told_aggregation(self.functions(fingerprint), part.schema)
        if part.rule == "rows" or aggregation is None or not aggregation.state_schema.equals(part.schema):
            return Stored(part.schema)
        return Finished(aggregation, known.ends_us)

    def functions(self, fingerprint: Fingerprint) -> Functions:
        """What is computed, by output."""
        return functions_of(fingerprint)


class RowsOfWindows(StoredRows):
    """Sums of panes are added up, and shown as windows that are not complete."""

    def part(
        self, name: str, schema: pa.Schema, fingerprint: Fingerprint, meta: Any, known: Aggregation | None
    ) -> Part:
        if PANE not in schema.names:
            return super().part(name, schema, fingerprint, meta, known)
        fits = known is not None and known.state_schema.equals(schema)
        aggregation = known if fits else told_aggregation(self.functions(fingerprint), schema)
        if aggregation is None:  # a function of the user's own: nobody here knows how to add up
            return Part(name, "rows", schema)
        return Part(name, "sums", schema, keys_of(schema), aggregation)

    def view(self, part: Part, fingerprint: Fingerprint, meta: Any, known: Known = NOTHING_KNOWN) -> View:
        if part.aggregation is None:
            return super().view(part, fingerprint, meta, known)
        size, slide = fingerprint.frame["size_us"], fingerprint.frame["slide_us"]
        return OpenWindows(Windows(size, slide, 0, part.aggregation), meta.get("watermark"), known.time_type)
