"""Expressions that tasks compute on Arrow columns give what Catalyst gives, for every kind of value, or leave it to Catalyst."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from sampling import examples

from holdfast.language.connectors import Declined
from holdfast.operators.expressions.change import Change
from holdfast.runtime.engines.spark.expressions.catalyst import change_of
from holdfast.runtime.engines.spark.expressions.translated import _plan, _schema
from holdfast.runtime.engines.spark.stateless import spark_schema

pytestmark = pytest.mark.spark

NAN, INF = math.nan, math.inf
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "l": (pa.int64(), [None, 0, 1, -1, 7, -10, 2**63 - 1, -(2**63)]),
    "m": (pa.int64(), [None, 3, -3, 0, 2**53 + 1]),
    "i": (pa.int32(), [None, 0, 5, -5, 2**31 - 1, -(2**31)]),
    "j": (pa.int16(), [None, 0, 2, -(2**15), 2**15 - 1]),
    "y": (pa.int8(), [None, -1, 3, 127, -128]),
    "f": (pa.float64(), [None, 0.0, -0.0, 1.5, -7.25, NAN, INF, -INF, 1e308, 5e-324]),
    "g": (pa.float64(), [None, 2.0, -0.0, NAN, 0.1]),
    "h": (pa.float32(), [None, 0.1, -0.0, NAN, 3.4e38]),
    "b": (pa.bool_(), [None, True, False]),
    "s": (pa.string(), [None, "", "a", "ab", "é", "B", "a\u0000", "'"]),
    "d": (pa.decimal128(10, 2), [None, Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")]),
    "e": (pa.decimal128(20, 5), [None, Decimal("2.00000"), Decimal("-1.50000")]),
    "k": (pa.date32(), [None, 0, 19_000, -1]),
    "t": (pa.timestamp("us", tz="UTC"), [None, 0, 1_700_000_000_000_001, -1]),
    "n": (pa.timestamp("us"), [None, 0, 1_700_000_000_000_000]),
}
NUMBERS = {"l": "m", "i": "y", "j": "y", "m": "i", "f": "g", "h": "f", "d": "e", "e": "d", "y": "j"}
LITERALS = {
    "whole": ["0", "1", "-1", "7", "2L", "3Y", "9223372036854775807L", "-5", "null"],
    "other": ["0.5", "2.50", "1.5D", "cast(2 as float)", "-0.0D"],
    "s": ["'a'", "''", "'é'", "null", "'B'"],
    "k": ["date'1970-01-01'", "date'2022-01-08'"],
    "t": ["timestamp'1970-01-01 00:00:00'", "timestamp'2023-11-14 22:13:20.000001'"],
    "n": ["timestamp_ntz'1970-01-01 00:00:00'"],
}
COMPARE = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


def table() -> pa.Table:
    """Every value of a column beside several of each other column."""
    length = 7 * max(len(values) for _, values in VALUES.values())
    columns = {
        name: pa.array(
            [value for value, _ in zip(itertools.cycle(values), range(length), strict=False)], kind
        )
        for name, (kind, values) in VALUES.items()
    }
    # Lengths that have no common divisor bring all values of two columns together.
    parts = [
        pa.table({name: column.take(pa.array([(row * (1 + shift * number)) % length for row in range(length)]))
                  for number, (name, column) in enumerate(columns.items())})
        for shift in range(6)
    ]  # fmt: skip
    return pa.concat_tables(parts)


@st.composite
def numbers(draw: Any, depth: int = 2) -> str:
    """The text of a number."""
    if depth == 0 or draw(st.booleans()):
        column = draw(st.sampled_from([*NUMBERS, *NUMBERS, "literal"]))
        return draw(st.sampled_from(LITERALS["whole"] + LITERALS["other"])) if column == "literal" else column
    kind = draw(
        st.sampled_from(["+", "-", "*", "%", "/", "div", "-x", "abs", "case", "coalesce", "cast", "if"])
    )
    left, right = draw(numbers(depth - 1)), draw(numbers(depth - 1))
    if kind in ("-x", "abs"):
        return f"(-({left}))" if kind == "-x" else f"abs({left})"
    if kind == "cast":
        return (
            f"cast({left} as {draw(st.sampled_from(['bigint', 'double', 'int', 'decimal(20,5)', 'float']))})"
        )
    if kind == "coalesce":
        return f"{draw(st.sampled_from(['coalesce', 'nvl', 'nullif']))}({left}, {right})"
    if kind in ("case", "if"):
        when = draw(conditions(depth - 1))
        return (
            f"if({when}, {left}, {right})"
            if kind == "if"
            else f"case when {when} then {left} else {right} end"
        )
    return f"({left} {kind} {right})"


@st.composite
def conditions(draw: Any, depth: int = 2) -> str:
    """The text of a condition."""
    kind = draw(
        st.sampled_from(["compare", "compare", "same kind", "and", "not", "null", "in", "between", "text"])
    )
    if kind in ("and", "not") and depth:
        left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return (
            f"(not {left})" if kind == "not" else f"({left} {draw(st.sampled_from(['and', 'or']))} {right})"
        )
    if kind == "same kind":
        name = draw(st.sampled_from(["s", "k", "t", "n", "b", "d", "h"]))
        other = draw(st.sampled_from([name, *LITERALS.get(name, [])]))
        return f"({name} {draw(COMPARE)} {other})"
    if kind == "text":
        fn = draw(st.sampled_from(["startswith", "endswith", "contains"]))
        return f"{fn}(s, {draw(st.sampled_from(LITERALS['s']))})"
    if kind == "in":
        name = draw(st.sampled_from(["s", "i", "l", "f", "d"]))
        options = LITERALS["s"] if name == "s" else LITERALS["whole"] + LITERALS["other"]
        several = draw(st.lists(st.sampled_from(options), min_size=1, max_size=12))
        return f"({name} in ({', '.join(several)}))"
    left = draw(numbers(min(depth, 1)))
    if kind == "null":
        return draw(st.sampled_from([f"({left} is null)", f"({left} is not null)", "isnan(f)", "isnan(h)"]))
    if kind == "between":
        return f"({left} between {draw(numbers(0))} and {draw(numbers(0))})"
    return f"({left} {draw(COMPARE)} {draw(numbers(min(depth, 1)))})"


@pytest.fixture(params=["true", "false"], ids=["ansi", "wraps"])
def ansi(request: pytest.FixtureRequest, spark: Any) -> Iterator[bool]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param == "true"
    spark.conf.set("spark.sql.ansi.enabled", before)


ROWS = table()


def translated(frame: Any, ansi: bool) -> list[tuple[str, Change]]:
    """Each column that tasks could compute, by itself."""
    (top, *below), schema, found = json.loads(_plan(frame)), _schema(frame), []
    for column, field in zip(top["projectList"], schema, strict=True):
        plan = json.dumps([{**top, "projectList": [column]}, *below])
        with contextlib.suppress(Declined):
            found.append((field.name, change_of(plan, ROWS.schema, pa.schema([field]), ansi, utc=True)))
    return found


def selected(frame: Any, texts: Sequence[str]) -> list[Any]:
    """Frames with these expressions, without those that Catalyst refuses."""
    try:
        asked = frame.selectExpr(*(f"{text} as `{text}`" for text in texts))
        return [asked] if asked.schema else []
    except AnalysisException:
        half = len(texts) // 2
        return [*selected(frame, texts[:half]), *selected(frame, texts[half:])] if half else []


def plain(column: Any) -> list[Any]:
    """Values that compare: NaN equals itself, zeros have signs."""
    found = column.to_pylist()
    return [(repr(value), math.copysign(1, value)) if isinstance(value, float) and value == value else repr(value)
            for value in found]  # fmt: skip


def alike(frame: Any, texts: list[str], ansi: bool) -> int:
    """How many expressions were computed by both; they gave the same."""
    computed: dict[str, Any] = {}
    for name, change in [each for asked in selected(frame, texts) for each in translated(asked, ansi)]:
        with contextlib.suppress(Declined):
            computed[name] = change.applied(ROWS.select(change.needs([name])), [name]).column(name)
    theirs = frame.selectExpr(*(f"{text} as `{text}`" for text in computed)).toArrow()
    for text, mine in computed.items():
        assert mine.type == theirs.column(text).type, text
        assert plain(mine) == plain(theirs.column(text)), text
    return len(computed)


def test_expressions_give_what_catalyst_gives(spark: Any, ansi: bool) -> None:
    frame = spark.createDataFrame(ROWS, spark_schema(ROWS.schema)).cache()
    found = []

    @examples(6)
    @given(st.lists(conditions(), min_size=10, max_size=20), st.lists(numbers(), min_size=10, max_size=20))
    def both_ways(some: list[str], more: list[str]) -> None:
        texts = list(dict.fromkeys([*some, *more]))
        found.append((len(texts), alike(frame, texts, ansi)))

    both_ways()
    frame.unpersist()
    asked, computed = (sum(column) for column in zip(*found, strict=True))
    assert computed > asked / 4, "most expressions were left to Catalyst: little was compared"
