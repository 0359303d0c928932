"""How a kind of operator has its stored rows read: into which parts they fall, how those are read and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import StateError
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.stored.parts import NOTHING, STATE_PART, Known, Part, keys_of
from holdfast.operators.stored.views import Finished, OpenWindows, Stored, View
from holdfast.state.aggregates.accumulators import MOST_DIGITS
from holdfast.state.aggregates.aggregation import Aggregation, kept_part
from holdfast.state.aggregates.function_names import POSITION, is_ordered
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.keyed.expiry import SEEN
from holdfast.state.windows.session_windows import SESSION
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
        aggregation = known.aggregation or aggregation_of(self.functions(), part.schema)
        if part.rule == "rows" or aggregation is None or not aggregation.state_schema.equals(part.schema):
            return Stored(part.schema)
        return Finished(aggregation, known.ends_us)

    def functions(self) -> Functions:
        """What is computed, by output."""
        return functions_of(self.fingerprint)


class RowsOfWindows(StoredRows):
    """Sums of panes are added up, and shown as windows that are not complete."""

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        if PANE not in schema.names and SESSION not in schema.names:
            return super().part(name, schema, known)
        fits = known is not None and known.state_schema.equals(schema)
        aggregation = known if fits else aggregation_of(self.functions(), schema)
        if aggregation is None:  # a function of the user's own: nobody here knows how to add up
            return Part(name, "rows", schema)
        return Part(name, "sums", schema, keys_of(schema), aggregation)

    def view(self, part: Part, known: Known = NOTHING) -> View:
        if part.aggregation is None or PANE not in part.schema.names:
            return super().view(part, known)
        size, slide = self.fingerprint.frame["size_us"], self.fingerprint.frame["slide_us"]
        windows = Windows(size, slide, 0, part.aggregation)
        return OpenWindows(windows, self.meta.get("watermark"), known.time_type)


_SPREAD = 10
"""Digits by which the sum of decimals is wider than they are."""


@dataclass(frozen=True, slots=True)
class Function:
    """What is computed of a column, or without one of whole rows, and the type of the result as text."""

    name: str
    of_column: bool = True
    result: str = ""


Functions = Mapping[str, Function]
"""By the names of what they compute."""


def functions_of(fingerprint: Fingerprint) -> dict[str, Function]:
    """What its aggregates compute, and when a key was last seen if keys are forgotten."""
    found = {SEEN: Function("max", True, "int64")}
    for output, of in fingerprint.entries.get("aggregates", {}).items():
        found[output] = Function(of["function"], "column" in of, of["type"])
    return found


# --- how stored sums are added up and finished -------------------------------------------------------------------------
#
# The fingerprint names functions and result types, a segment has the types of what is kept: together they settle every
# function but those the user wrote. The columns such an aggregation makes are compared with those of the segment, so a
# wrong guess shows: then there is no aggregation, and whoever asked goes on with the columns as they are stored.


def aggregation_of(functions: Functions, schema: pa.Schema) -> Aggregation | None:
    """The aggregation whose state rows have these columns; None if there is no way to know."""
    by = [name for name in schema.names[1:] if kept_part(name) is None]
    kept: dict[str, dict[str, pa.DataType]] = {}
    for column in schema:
        if (part := kept_part(column.name)) is not None:
            kept.setdefault(part[0], {})[part[1]] = column.type
    try:
        return _planned(by, kept, functions, schema)
    except (StateError, KeyError, ValueError, AttributeError, pa.ArrowException):
        return None


def _planned(
    by: list[str], kept: Mapping[str, Mapping[str, pa.DataType]], functions: Functions, schema: pa.Schema
) -> Aggregation | None:
    """Inputs are named after outputs: two functions of one column may tell different types that will both do."""
    aggregates, inputs = [], [schema.field(name) for name in by]
    for output, parts in kept.items():
        function = functions[output]
        aggregates.append((output, function.name, f"{output} of" if function.of_column else None))
        if function.of_column:
            inputs.append(pa.field(f"{output} of", _input_type(function, parts)))
    if any(is_ordered(function) for _, function, _ in aggregates):
        inputs += [pa.field(name, pa.int64()) for name in POSITION]
    made = Aggregation.plan(by, aggregates, pa.schema(inputs))
    return made if made.state_schema.equals(schema) else None


def _input_type(function: Function, parts: Mapping[str, pa.DataType]) -> pa.DataType:
    """A type of column of which the function keeps these parts and gives that result."""
    name = function.name
    if name in ("count", "variance", "stddev") or name.startswith("quantile["):
        return pa.float64()
    if name in ("min", "max", "first", "last"):
        return parts["value"]
    if name == "collect":
        return parts["value"].value_type
    if name in ("count_distinct", "collect_set"):
        return parts["values"].value_type
    if name.startswith("top["):
        return parts["rows"].value_type
    total = parts["sum"]  # of sum or avg; a KeyError means it is none of them
    if not pa.types.is_decimal128(total):
        return pa.float64()
    if function.result in ("int64", "double"):
        return pa.int64()
    if name == "avg":
        return _averaged(function.result, total)
    return pa.decimal128(
        total.precision - _SPREAD if total.precision < MOST_DIGITS else MOST_DIGITS, total.scale
    )


def _averaged(result: str, total: pa.DataType) -> pa.DataType:
    """The decimal type whose average is of type `result`, as in `decimal128(14,6)`."""
    digits = int(result.partition("(")[2].partition(",")[0])
    return pa.decimal128(min(digits, MOST_DIGITS) - 4 if digits < MOST_DIGITS else MOST_DIGITS, total.scale)
