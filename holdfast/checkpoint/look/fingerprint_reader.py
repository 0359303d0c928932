"""What a manifest's fingerprint tells about an operator, and from it how its sums are added up and finished.

    aggregate by=(word:string) agg=(n:count:int64,total:sum(qty):int64) groups=128

The fingerprint names functions and result types, a segment has the types of what is kept: together they settle every
function but those the user wrote. The columns such an aggregation makes are compared with those of the segment, so a
wrong guess shows: then there is no aggregation, and whoever asked goes on with the columns as they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates.accumulators import MOST_DIGITS
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.aggregates.best_rows import top_name
from holdfast.state.aggregates.function_names import POSITION, is_ordered
from holdfast.state.keyed.expiry import SEEN

BEST = "__hf_best"
_AGGREGATE = re.compile(
    r"(?P<output>[^:]+):(?P<function>[a-z_]+(\[[^\]]*\])?)(\((?P<column>.*)\))?:(?P<type>.+)"
)
_KEPT = re.compile(r"__hf_(?P<output>.+)\.(?P<part>[a-z0-9_]+)")
_WITH_AGGREGATES = ("aggregate", "window", "top", "dedup")
_SPREAD = 10
"""Digits by which the sum of decimals is wider than they are."""


@dataclass(frozen=True)
class Described:
    """A fingerprint taken apart. `kind`: its first word."""

    text: str
    kind: str
    fields: Mapping[str, str]

    @staticmethod
    def of(fingerprint: str) -> Described:
        """Never fails: what is not understood is not told."""
        kind, *words = list(_split(fingerprint, " ")) or [""]
        pairs = [word.partition("=") for word in words if "=" in word]
        return Described(fingerprint, kind, {name: text for name, _, text in pairs})

    @property
    def is_asof(self) -> bool:
        return self.kind == "join" and self.text.startswith("join AsofMatch")

    @property
    def window_us(self) -> tuple[int, int] | None:
        """(size, slide) of windows of event time."""
        size, slide = self.fields.get("size", ""), self.fields.get("slide", "")
        return (int(size), int(slide)) if size.isdigit() and slide.isdigit() else None

    @property
    def variables(self) -> dict[str, str]:
        """Of a keyed Python operator: how each variable is declared, for example value(int)."""
        state = _inside(self.fields.get("state", "()"))
        pairs = [item.partition(":") for item in _split(state, ",") if item]
        return {name: declared for name, _, declared in pairs}

    def aggregation(self, schema: pa.Schema) -> Aggregation | None:
        """The aggregation whose state rows have these columns; None if that cannot be told."""
        if self.kind not in _WITH_AGGREGATES:
            return None
        by = [name for name in schema.names[1:] if _KEPT.fullmatch(name) is None]
        kept: dict[str, dict[str, pa.DataType]] = {}
        for field in schema:
            if match := _KEPT.fullmatch(field.name):
                kept.setdefault(match["output"], {})[match["part"]] = field.type
        functions = self._functions()
        try:
            return _planned(by, kept, functions, schema)
        except (StateError, KeyError, ValueError, AttributeError, pa.ArrowException):
            return None

    def _functions(self) -> dict[str, tuple[str, bool, str]]:
        """Per output: function, whether it has a column, result type."""
        found = {SEEN: ("max", True, "int64")}
        if self.kind == "top":
            columns = [item for item in _split(_inside(self.fields.get("order", "()")), ",") if item]
            order = tuple((column.removeprefix("-"), column.startswith("-")) for column in columns)
            found[BEST] = (top_name(int(self.fields.get("n", "0")), order), True, "")
        for item in _split(_inside(self.fields.get("agg", "()")), ","):
            if match := _AGGREGATE.fullmatch(item):
                found[match["output"]] = (match["function"], match["column"] is not None, match["type"])
        return found


def _planned(
    by: list[str],
    kept: Mapping[str, Mapping[str, pa.DataType]],
    functions: Mapping[str, tuple[str, bool, str]],
    schema: pa.Schema,
) -> Aggregation | None:
    """Inputs are named after outputs: two functions of one column may tell different types that will both do."""
    aggregates, inputs = [], [schema.field(name) for name in by]
    for output, parts in kept.items():
        function, has_column, result = functions[output]
        aggregates.append((output, function, f"{output} of" if has_column else None))
        if has_column:
            inputs.append(pa.field(f"{output} of", _input_type(function, result, parts)))
    if any(is_ordered(function) for _, function, _ in aggregates):
        inputs += [pa.field(name, pa.int64()) for name in POSITION]
    made = Aggregation.plan(by, aggregates, pa.schema(inputs))
    return made if made.state_schema.equals(schema) else None


def _input_type(function: str, result: str, parts: Mapping[str, pa.DataType]) -> pa.DataType:
    """A type of column of which the function keeps these parts and gives that result."""
    if function in ("count", "variance", "stddev") or function.startswith("quantile["):
        return pa.float64()
    if function in ("min", "max", "first", "last"):
        return parts["value"]
    if function == "collect":
        return parts["value"].value_type
    if function in ("count_distinct", "collect_set"):
        return parts["values"].value_type
    if function.startswith("top["):
        return parts["rows"].value_type
    total = parts["sum"]  # of sum or avg; a KeyError means it is none of them
    if not pa.types.is_decimal128(total):
        return pa.float64()
    if result in ("int64", "double"):
        return pa.int64()
    if function == "avg":
        return _averaged(result, total)
    return pa.decimal128(
        total.precision - _SPREAD if total.precision < MOST_DIGITS else MOST_DIGITS, total.scale
    )


def _averaged(result: str, total: pa.DataType) -> pa.DataType:
    """The decimal type whose average is of type `result`, as in `decimal128(14,6)`."""
    digits = int(result.partition("(")[2].partition(",")[0])
    return pa.decimal128(min(digits, MOST_DIGITS) - 4 if digits < MOST_DIGITS else MOST_DIGITS, total.scale)


def _inside(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") else ""


def _split(text: str, separator: str) -> Iterator[str]:
    """The pieces between separators that are in no brackets."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([<") - (sign in ")]>")
        if sign == separator and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]
