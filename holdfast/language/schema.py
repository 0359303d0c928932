"""Schemas as users write them: a `pyarrow.Schema`, a Spark `StructType`, or a DDL string. All become Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from holdfast.errors import TopologyError

RESERVED_PREFIX = "__hf_"

SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
EXAMPLE = "Write 'id long, name string, price decimal(10,2), tags array<string>, s struct<a:int>'."

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^']|'')*')|(\w+)|(\S))", re.UNICODE)


def to_arrow(schema: Any, what: str = "the schema") -> pa.Schema:
    """Any accepted form as an Arrow schema; checked for empty, repeated and reserved names."""
    if isinstance(schema, pa.Schema):
        arrow = schema
    elif isinstance(schema, str):
        arrow = pa.schema(_Parser(schema, what).whole())
    elif callable(getattr(schema, "json", None)):
        arrow = _from_spark_json(schema, what)
    else:
        raise TopologyError(
            f"{schema!r} is no schema ({what}).",
            cure=f"Give a pyarrow.Schema, a Spark StructType or DDL. {EXAMPLE}",
        )
    check_columns(arrow, what)
    return arrow


def check_columns(schema: pa.Schema, what: str) -> None:
    """Refuse schemas that no stream can have."""
    if not schema.names:
        raise TopologyError(f"No columns in {what}.", cure=EXAMPLE)
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise TopologyError(
            f"Repeated column names in {what}: {', '.join(repeated)}.", cure="Give each column its own name."
        )
    reserved = [name for name in schema.names if name.startswith(RESERVED_PREFIX)]
    if reserved:
        raise TopologyError(
            f"Column names beginning with {RESERVED_PREFIX!r} in {what}: {', '.join(reserved)}.",
            cure="Rename them: holdfast keeps that prefix for itself.",
        )


# --- Spark's StructType, through its JSON form ----------------------------------------------------------------------


def _from_spark_json(schema: Any, what: str) -> pa.Schema:
    value = json.loads(schema.json())
    if not isinstance(value, dict) or value.get("type") != "struct":
        raise TopologyError(f"{schema!r} is not a StructType ({what}).", cure=EXAMPLE)
    return pa.schema(list(_spark_type(value, what)))


def _spark_type(value: Any, what: str) -> pa.DataType:
    if isinstance(value, str):
        return _Parser(value, what).only_type()
    match value.get("type"):
        case "struct":
            return pa.struct(
                [
                    pa.field(f["name"], _spark_type(f["type"], what), f.get("nullable", True))
                    for f in value["fields"]
                ]
            )
        case "array":
            return pa.list_(
                pa.field("element", _spark_type(value["elementType"], what), value.get("containsNull", True))
            )
        case "map":
            return pa.map_(_spark_type(value["keyType"], what), _spark_type(value["valueType"], what))
    raise TopologyError(f"Type {value.get('type')!r} in {what} is not supported.", cure=EXAMPLE)


# --- DDL ------------------------------------------------------------------------------------------------------------


class _Parser:
    """Recursive descent over `name type, …`. Tokens are (text, quoted); names may stand in backticks."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.tokens = list(_tokens(text))
        self.at = 0

    def whole(self) -> list[pa.Field]:
        """All columns of `name type, …`; one `struct<…>` around them may stay."""
        if self._word() == "struct" and len(self.tokens) > 1 and self.tokens[1] == ("<", False):
            return list(self.only_type())
        fields = self._fields()
        self._end()
        return fields

    def only_type(self) -> pa.DataType:
        type_ = self._type()
        self._end()
        return type_

    def _fields(self, until: str = "") -> list[pa.Field]:
        fields = []
        while self.at < len(self.tokens) and self.tokens[self.at] != (until, False):
            fields.append(self._field())
            if not self._take(","):
                break
        return fields

    def _field(self) -> pa.Field:
        name, quoted = self._next("a column name")
        if not quoted and not re.match(r"\w", name):
            raise self._error(f"expected a column name, found {name!r}")
        self._take(":")
        type_ = self._type()
        nullable = True
        if self._word() == "not":
            self._next("not")
            if self._next("NULL")[0].lower() != "null":
                raise self._error("expected NOT NULL")
            nullable = False
        if self._word() == "comment":
            self._next("comment")
            self._next("a quoted comment")
        return pa.field(name, type_, nullable)

    def _type(self) -> pa.DataType:
        name = self._next("a type")[0].lower()
        if name in SIMPLE:
            return SIMPLE[name]
        match name:
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "varchar" | "char":
                self._numbers()
                return pa.string()
            case "array":
                return pa.list_(pa.field("element", self._inside(self._type)))
            case "map":
                return pa.map_(*self._inside(self._pair))
            case "struct":
                return pa.struct(self._inside(lambda: self._fields(until=">")))
        raise self._error(f"unknown type {name!r}")

    def _decimal(self) -> pa.DataType:
        precision, scale = [*self._numbers(), 0][:2] if self._peek("(") else (10, 0)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self._error(
                f"decimal({precision},{scale}) needs 1 to 38 digits, and no more of them after the point"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        self._expect("(")
        numbers = []
        while True:
            text = self._next("a number")[0]
            if not text.isdecimal():
                raise self._error(f"expected a number, found {text!r}")
            numbers.append(int(text))
            if not self._take(","):
                break
        self._expect(")")
        return numbers

    def _pair(self) -> tuple[pa.DataType, pa.DataType]:
        key = self._type()
        self._expect(",")
        return key, self._type()

    def _inside(self, parse: Any) -> Any:
        self._expect("<")
        value = parse()
        self._expect(">")
        return value

    def _word(self) -> str:
        return (
            self.tokens[self.at][0].lower()
            if self.at < len(self.tokens) and not self.tokens[self.at][1]
            else ""
        )

    def _peek(self, sign: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] == (sign, False)

    def _take(self, sign: str) -> bool:
        found = self._peek(sign)
        self.at += found
        return found

    def _next(self, wanted: str) -> tuple[str, bool]:
        if self.at >= len(self.tokens):
            raise self._error(f"expected {wanted}, found the end")
        self.at += 1
        return self.tokens[self.at - 1]

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            found = self.tokens[self.at][0] if self.at < len(self.tokens) else "the end"
            raise self._error(f"expected {sign!r}, found {found!r}")

    def _end(self) -> None:
        if self.at < len(self.tokens):
            raise self._error(f"expected a comma or the end, found {self.tokens[self.at][0]!r}")

    def _error(self, problem: str) -> TopologyError:
        return TopologyError(f"Cannot read {self.what} {self.text!r}: {problem}.", cure=EXAMPLE)


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    for match in _TOKEN.finditer(text):
        backticked, comment, word, sign = match.groups()
        if backticked is not None:
            yield backticked.replace("``", "`"), True
        elif comment is not None:
            yield comment, True
        else:
            yield word or sign, False
