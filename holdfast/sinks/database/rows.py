"""Rows as they are staged: the table's columns in types that databases have, who staged them, their order. Pure, vectorised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.sinks.database.columns import DELETES, ORDER, WRITER, Columns
from holdfast.sinks.database.json_text import json_text

_DELETE = ("d", "delete", "-d", "D", "DELETE", "-D")
_BEFORE = ("-u", "-U", "update_before", "update_preimage", "UPDATE_BEFORE")
_UPSERT = (
    *("c", "r", "u", "i", "C", "R", "U", "I", "+i", "+u", "+I", "+U"),
    *("insert", "update", "upsert", "update_after", "update_postimage"),
    *("INSERT", "UPDATE", "UPSERT", "UPDATE_AFTER"),
)
"""What changelogs call the operations: ours, Debezium's, Flink's, and those of change data feeds."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who stages rows: the writer, unique among all attempts; the step; the partition it writes."""

    writer: int
    step: int
    partition: int


def staged_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is staged."""
    if pa.types.is_nested(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_uint8(kind) or pa.types.is_int8(kind):
        return pa.int16()
    if pa.types.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if pa.types.is_uint64(kind) else pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_time(kind):
        return pa.time64("us")
    return kind


def staged_schema(columns: Columns) -> pa.Schema:
    """All columns of a staging table."""
    fields = [pa.field(field.name, staged_type(field.type)) for field in columns.data]
    fields.append(pa.field(WRITER, pa.int64()))
    if columns.op is not None:
        fields.append(pa.field(DELETES, pa.bool_()))
    if columns.is_keyed:
        fields += [pa.field(name, pa.int64()) for name in ORDER]
    return pa.schema(fields)


def staged_rows(table: pa.Table, columns: Columns, origin: Origin, first: int = 0) -> pa.Table:
    """The rows to stage. `first`: how many rows of the same origin came before."""
    row = np.arange(first, first + table.num_rows, dtype=np.int64)
    arrays = [_staged(table.column(name), columns.data.field(name).type) for name in columns.names]
    arrays.append(pa.array(np.full_like(row, origin.writer)))
    if columns.op is not None:
        arrays.append(_deletes(table.column(columns.op), columns.op))
    if columns.is_keyed:
        has_positions = all(name in table.column_names for name in POSITION_COLUMNS)
        order = [table.column(name).cast(pa.int64()) for name in POSITION_COLUMNS] if has_positions else None
        if order is None:
            order = [
                pa.array(np.zeros_like(row)),
                pa.array(np.full_like(row, origin.partition)),
                pa.array(row),
            ]
        arrays += [pa.array(np.full_like(row, origin.step)), *order]
    rows = pa.Table.from_arrays(arrays, schema=staged_schema(columns))
    if columns.op is None or pa.types.is_boolean(table.column(columns.op).type):
        return rows
    return rows.filter(pc.invert(pc.is_in(table.column(columns.op), pa.array(_BEFORE))))


def _staged(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_dictionary(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        return json_text(column.cast(kind) if column.type != kind else column)
    return column.cast(staged_type(kind))


def _deletes(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Whether each row deletes; InputError if one does not say what it does."""
    if not pa.types.is_boolean(column.type):
        known = pc.is_in(column, pa.array((*_DELETE, *_BEFORE, *_UPSERT)))
        if not pc.all(known, min_count=0).as_py():
            other = column.filter(pc.invert(known))[0].as_py()
            raise InputError(
                f"the op column {name!r} holds {other!r}, which is no operation of a changelog.",
                cure="Use 'insert', 'update', 'upsert' or 'delete' (or c, r, u, d; +I, -U, +U, -D), or a boolean column.",
            )
        return pc.is_in(column, pa.array(_DELETE))
    if column.null_count:
        raise InputError(
            f"the op column {name!r} is null in a row.",
            cure="Fill it: true deletes the key, false writes the row.",
        )
    return column
