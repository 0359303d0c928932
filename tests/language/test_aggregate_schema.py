"""Types of what an aggregate computes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import holdfast.language.operators.aggregates as agg
from holdfast.errors import TopologyError
from holdfast.language.operators.aggregates import aggregate_schema, aggregate_spec

COLUMNS = {
    "k": pa.string(),
    "i8": pa.int8(),
    "i64": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "dec": pa.decimal128(12, 2),
    "wide": pa.decimal128(35, 4),
    "s": pa.string(),
    "t": pa.timestamp("us", tz="UTC"),
    "list": pa.list_(pa.int32()),
}
SCHEMA = pa.schema(list(COLUMNS.items()))


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (agg.count(), pa.int64()),
        (agg.sum("i8"), pa.int64()),
        (agg.sum("i64"), pa.int64()),
        (agg.sum("f"), pa.float64()),
        (agg.sum("d"), pa.float64()),
        (agg.sum("dec"), pa.decimal128(22, 2)),
        (agg.sum("wide"), pa.decimal128(38, 4)),
        (agg.min("i8"), pa.int8()),
        (agg.max("t"), pa.timestamp("us", tz="UTC")),
        (agg.max("s"), pa.string()),
        (agg.avg("i8"), pa.float64()),
        (agg.avg("dec"), pa.decimal128(16, 6)),
        (agg.avg("wide"), pa.decimal128(38, 8)),
    ],
)
def test_the_type_of_an_aggregate_follows_its_column(aggregate: agg.Aggregate, expected: pa.DataType) -> None:
    spec = aggregate_spec("k", "changes", {"x": aggregate})
    assert aggregate_schema(SCHEMA, spec) == pa.schema([("k", pa.string()), ("x", expected)])


def test_keys_come_first_in_the_order_given() -> None:
    spec = aggregate_spec(["t", "k"], "each", {"b": agg.count(), "a": agg.count()})
    assert aggregate_schema(SCHEMA, spec).names == ["t", "k", "b", "a"]


@pytest.mark.parametrize(
    ("by", "aggregate", "message"),
    [
        ("nope", agg.count(), "There is no column 'nope'"),
        ("k", agg.sum("nope"), "There is no column 'nope'"),
        ("list", agg.count(), "'list' of type list<item: int32> cannot be a key"),
        ("k", agg.sum("s"), "sum('s') needs numbers, and the column is of type string"),
        ("k", agg.avg("t"), "avg('t') needs numbers"),
        ("k", agg.max("list"), "max('list') cannot compare"),
    ],
)
def test_columns_that_do_not_fit_are_refused(by: str, aggregate: agg.Aggregate, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        aggregate_schema(SCHEMA, aggregate_spec(by, "changes", {"x": aggregate}))
    assert message in caught.value.message
    assert caught.value.cure


@pytest.mark.parametrize(
    ("by", "emit", "aggregates", "message"),
    [
        ([], "changes", {"n": agg.count()}, "needs the names of its key columns"),
        ([1], "changes", {"n": agg.count()}, "needs the names of its key columns"),
        ("k", "all", {"n": agg.count()}, "emit='all' is not known"),
        ("k", "each", {"n": "count"}, "n='count' is not one of holdfast's"),
    ],
)
def test_arguments_are_checked(by: Any, emit: str, aggregates: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        aggregate_spec(by, emit, aggregates)
    assert message in caught.value.message


def test_functions_take_column_names_only() -> None:
    with pytest.raises(TopologyError, match="takes the name of a column"):
        agg.sum(3)  # type: ignore[arg-type]
