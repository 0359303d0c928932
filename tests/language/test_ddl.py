"""Schemas as users write them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import TopologyError
from holdfast.language.schema import to_arrow

UTC = pa.timestamp("us", tz="UTC")


def element(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", type_))


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("id long, name string", [("id", pa.int64()), ("name", pa.string())]),
        ("a INT, b Integer, c bigint", [("a", pa.int32()), ("b", pa.int32()), ("c", pa.int64())]),
        (
            "a byte, b tinyint, c short, d smallint",
            [(n, pa.int8() if n in "ab" else pa.int16()) for n in "abcd"],
        ),
        ("a float, b double, c boolean", [("a", pa.float32()), ("b", pa.float64()), ("c", pa.bool_())]),
        ("a binary, b date", [("a", pa.binary()), ("b", pa.date32())]),
        ("a timestamp, b timestamp_ntz", [("a", UTC), ("b", pa.timestamp("us"))]),
        ("price decimal(10,2), d decimal", [("price", pa.decimal128(10, 2)), ("d", pa.decimal128(10, 0))]),
        ("d decimal( 38 , 38 ), e dec(7)", [("d", pa.decimal128(38, 38)), ("e", pa.decimal128(7, 0))]),
        ("v varchar(10)", [("v", pa.string())]),
        ("tags array<string>", [("tags", element(pa.string()))]),
        ("s struct<a:int>", [("s", pa.struct([("a", pa.int32())]))]),
        ("s struct<a int, b: array<array<date>>>", None),
        ("m map<string, array<int>>", [("m", pa.map_(pa.string(), element(pa.int32())))]),
        ("struct<a:int,b:string>", [("a", pa.int32()), ("b", pa.string())]),
        ("a: int, b:string", [("a", pa.int32()), ("b", pa.string())]),
        ("struct int", [("struct", pa.int32())]),
        ("`my col` int, `tick``ed` long", [("my col", pa.int32()), ("tick`ed", pa.int64())]),
        ("a int comment 'what it''s for', b int", [("a", pa.int32()), ("b", pa.int32())]),
        ("größe double", [("größe", pa.float64())]),
    ],
)
def test_ddl_becomes_arrow_with_spark_meaning(ddl: str, expected: list[Any] | None) -> None:
    if expected is None:
        inner = pa.struct([("a", pa.int32()), ("b", element(element(pa.date32())))])
        expected = [("s", inner)]
    assert to_arrow(ddl) == pa.schema(expected)


def test_not_null_is_kept() -> None:
    schema = to_arrow("a int NOT NULL, b int")
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("id lnog", "unknown type 'lnog'"),
        ("id", "expected a type, found the end"),
        ("id long name string", "expected a comma or the end, found 'name'"),
        ("a array<int", "expected '>', found 'the end'"),
        ("a array int", "expected '<', found 'int'"),
        ("a map<int>", "expected ',', found '>'"),
        ("a decimal(39,2)", "1 to 38 digits"),
        ("a decimal(5,6)", "1 to 38 digits"),
        ("a decimal(x)", "expected a number, found 'x'"),
        (", a int", "expected a column name, found ','"),
        ("a int not", "expected NULL, found the end"),
        ("", "No columns"),
        ("a int, a string", "Repeated column names in the schema: a"),
        ("__hf_row int", "beginning with '__hf_'"),
    ],
)
def test_mistakes_are_explained(ddl: str, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        to_arrow(ddl)
    assert problem in caught.value.message
    assert caught.value.cure


def test_an_arrow_schema_is_taken_as_it_is() -> None:
    schema = pa.schema([("a", pa.large_string())])
    assert to_arrow(schema) is schema


class StructType:
    """Looks like Spark's: all that is used is `json()`."""

    def __init__(self, value: object) -> None:
        self.value = value

    def json(self) -> str:
        return json.dumps(self.value)


def field(name: str, type_: object, nullable: bool = True) -> dict[str, object]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": {}}


def test_a_spark_struct_type_becomes_arrow() -> None:
    inner = {"type": "struct", "fields": [field("x", "short")]}
    spark = StructType(
        {
            "type": "struct",
            "fields": [
                field("id", "long", nullable=False),
                field("price", "decimal(10,2)"),
                field("at", "timestamp"),
                field("tags", {"type": "array", "elementType": "string", "containsNull": True}),
                field(
                    "m", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
                ),
            ],
        }
    )
    assert to_arrow(spark) == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("at", UTC),
            pa.field("tags", element(pa.string())),
            pa.field("m", pa.map_(pa.string(), pa.struct([("x", pa.int16())]))),
        ]
    )


@pytest.mark.parametrize("value", [{"type": "udt", "fields": []}, "long"])
def test_other_spark_types_are_refused(value: object) -> None:
    with pytest.raises(TopologyError):
        to_arrow(StructType(value))


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"is no schema .* Give a pyarrow.Schema"):
        to_arrow(7)
