"""Checks that many verbs share: names of columns that users give, and the columns themselves once they are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from holdfast.errors import TopologyError


def column_name(value: Any, argument: str, what: str) -> str:
    """A name given as `argument`; the column it names `what`."""
    if not isinstance(value, str) or not value:
        raise TopologyError(f"{argument}={value!r} is no column name.", cure=f"Name the column that {what}.")
    return value


def event_time(on: Any) -> str:
    """The name of a column with the event time."""
    return column_name(on, "on", "holds the event time")


def key_names(by: str | Sequence[str], who: str, cure: str, *, needed: bool = True) -> tuple[str, ...]:
    """The names of key columns; `needed`: there is at least one."""
    keys = (by,) if isinstance(by, str) else tuple(by)
    if (needed and not keys) or not all(isinstance(key, str) and key for key in keys):
        raise TopologyError(f"{who} needs the names of its key columns, not {by!r}.", cure=cure)
    return keys


def column_type(schema: pa.Schema, column: str, where: str = "") -> pa.DataType:
    """The type of a column that must be there."""
    index = schema.get_field_index(column)
    if index < 0:
        raise TopologyError(
            f"There is no column {column!r}{where}.",
            cure=f"Available columns: {', '.join(schema.names) or 'none'}.",
        )
    return schema.field(index).type


def key_fields(schema: pa.Schema, by: Sequence[str]) -> list[pa.Field]:
    """The key columns; refuses what cannot be a key."""
    fields = [pa.field(key, column_type(schema, key)) for key in by]
    for field in fields:
        if pt.is_nested(field.type):
            raise TopologyError(
                f"The column {field.name!r} of type {field.type} cannot be a key.",
                cure="Use columns of simple types: take the fields out with with_columns(…) before.",
            )
    return fields


def time_type(schema: pa.Schema, on: str, what: str) -> pa.DataType:
    """The type of the column with the event time; refuses what is no timestamp."""
    index = schema.get_field_index(on)
    if index < 0 or not pt.is_timestamp(schema.field(index).type):
        found = "is not there" if index < 0 else f"is of type {schema.field(index).type}"
        times = ", ".join(repr(field.name) for field in schema if pt.is_timestamp(field.type))
        raise TopologyError(
            f"{what} {on!r}, which {found}.",
            cure=f"Name a timestamp column ({times or 'there is none'}), or make one with"
            ' with_columns(at="cast(… as timestamp)").',
        )
    return schema.field(index).type
