"""Reading slices of Parquet files in tasks, by pyarrow, without Spark's reader: only the row groups they lie in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import InputError
from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, Stamp
from holdfast.sources.file_plan import FilePiece
from holdfast.sources.lines import BEGINNING
from holdfast.sources.schemas import spark_type

STRETCH_ROWS = 1 << 20
"""What tasks read at a time, where they need not have all rows at once."""


@dataclass(frozen=True)
class ParquetReader:
    """Reads pieces of files whose columns have exactly the types of `schema`."""

    pieces: tuple[FilePiece, ...]
    schema: pa.Schema
    stamp: Stamp | None

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        parts = []
        for piece in self.pieces:
            with pq.ParquetFile(piece.path) as file:
                parts.append(self._read(file, piece, columns))
        return pa.concat_tables(parts) if parts else self._no_rows(columns)

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The same, one stretch of row groups after the other."""
        empty = True
        for piece in self.pieces:
            with pq.ParquetFile(piece.path) as file:
                for part in row_stretches(piece, file.metadata):
                    empty = False
                    yield self._read(file, part, columns)
        if empty:
            yield self._no_rows(columns)

    def parts(self) -> list[ParquetReader]:
        return [
            replace(self, pieces=(part,))
            for piece in self.pieces
            for part in row_stretches(piece, pq.read_metadata(piece.path))
        ]

    def _read(self, file: pq.ParquetFile, piece: FilePiece, columns: Sequence[str]) -> pa.Table:
        schema, stamped = self._wanted(columns)
        groups, skipped = groups_of(file.metadata, piece)
        table = file.read_row_groups(groups, columns=schema.names, use_threads=False)
        end = None if piece.end is None else piece.end.row - skipped
        table = table.slice(
            piece.begin.row - skipped, None if end is None else end - piece.begin.row + skipped
        )
        table = table.select(schema.names).cast(schema)
        return (_stamped(table, piece, self.stamp) if stamped else table).select(list(columns))

    def _no_rows(self, columns: Sequence[str]) -> pa.Table:
        schema, stamped = self._wanted(columns)
        schema = pa.schema([*schema, *POSITION_FIELDS]) if stamped else schema
        return schema.empty_table().select(list(columns))

    def _wanted(self, columns: Sequence[str]) -> tuple[pa.Schema, bool]:
        """(which columns of the files, whether positions too)."""
        wanted = [name for name in columns if name not in POSITION_COLUMNS]
        return pa.schema([self.schema.field(name) for name in wanted]), len(wanted) != len(columns)


def with_positions(table: pa.Table, stamp: Stamp, ordinals: Any, rows: Any) -> pa.Table:
    """The table with the three position columns appended."""
    source = pa.array(np.full(table.num_rows, stamp.source_index, dtype=np.int32))
    for field, column in zip(POSITION_FIELDS, (source, ordinals, rows), strict=True):
        table = table.append_column(field, column)
    return table


def _stamped(table: pa.Table, piece: FilePiece, stamp: Stamp | None) -> pa.Table:
    assert stamp is not None
    ordinals = np.full(table.num_rows, piece.ordinal, dtype=np.int64)
    rows = np.arange(piece.begin.row, piece.begin.row + table.num_rows, dtype=np.int64)
    return with_positions(table, stamp, pa.array(ordinals), pa.array(rows))


# --- the whole slice, in the driver ---


def read_pieces(pieces: Sequence[FilePiece], schema: pa.Schema, stamp: Stamp | None) -> pa.Table:
    """All columns of all pieces. InputError names a file, and its row group, that cannot be read."""
    parts = []
    for piece in pieces:
        table = pa.concat_tables([schema.empty_table(), *(group for group in read_groups(piece, schema))])
        parts.append(table if stamp is None else _stamped(table, piece, stamp))
    if parts:
        return pa.concat_tables(parts)
    return (schema if stamp is None else pa.schema([*schema, *POSITION_FIELDS])).empty_table()


def read_groups(piece: FilePiece, schema: pa.Schema) -> Iterator[pa.Table]:
    """The piece's rows, one row group after the other."""
    with _named(piece.path, "the file"):
        file = pq.ParquetFile(piece.path, coerce_int96_timestamp_unit="us")
    with file:
        groups, before = groups_of(file.metadata, piece)
        for group in groups:
            with _named(piece.path, f"row group {group}"):
                table = _conform(file.read_row_group(group), schema)
            end = table.num_rows if piece.end is None else min(table.num_rows, piece.end.row - before)
            begin = max(0, piece.begin.row - before)
            before += table.num_rows
            yield table.slice(begin, end - begin)


@contextlib.contextmanager
def _named(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: {what} cannot be read as Parquet: {error}.", cure="Repair the file or remove it."
        ) from error


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The schema's columns in its order; a column the file lacks is null."""
    columns = []
    for field in schema:
        name = _name_in(table.schema, field.name)
        if name is None:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table[name]
        if (
            pa.types.is_timestamp(column.type)
            and not column.type.tz
            and field.type == pa.timestamp("us", tz="UTC")
        ):
            column = column.cast(pa.timestamp("us"), safe=False)
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=schema)


def _name_in(schema: pa.Schema, name: str) -> str | None:
    """A column as the file calls it: case does not matter, as in Spark."""
    if name in schema.names:
        return name
    return next((found for found in schema.names if found.casefold() == name.casefold()), None)


def groups_of(metadata: Any, piece: FilePiece) -> tuple[list[int], int]:
    """(row groups the piece lies in, rows before the first of them)."""
    groups: list[int] = []
    skipped = before = 0
    for number in range(metadata.num_row_groups):
        after = before + metadata.row_group(number).num_rows
        if after > piece.begin.row and (piece.end is None or before < piece.end.row):
            skipped = skipped if groups else before
            groups.append(number)
        before = after
    return groups, skipped


def row_stretches(piece: FilePiece, metadata: pq.FileMetaData) -> Iterator[FilePiece]:
    """The piece in stretches of whole row groups, of STRETCH_ROWS rows if the groups are not larger."""
    groups, first = groups_of(metadata, piece)
    last = metadata.num_rows if piece.end is None else piece.end.row
    begin, end = piece.begin.row, first
    for group in groups:
        end += metadata.row_group(group).num_rows
        if end - begin >= STRETCH_ROWS or group == groups[-1]:
            stop = min(end, last)
            yield replace(
                piece, begin=piece.begin._replace(row=begin), end=(piece.end or BEGINNING)._replace(row=stop)
            )
            begin = stop


# --- types ---


def readable(path: str, schema: pa.Schema) -> bool:
    """Whether the file has the schema's columns in types that pyarrow and Spark read alike. InputError if a column has
    a type that cannot be read as the schema's, or no column is there."""
    with _named(path, "the file"), pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        found = file.schema_arrow
    names = {field.name: _name_in(found, field.name) for field in schema}
    if len(schema) and not any(names.values()):
        raise InputError(
            f"{path} has none of the schema's columns ({', '.join(schema.names)}), but {', '.join(found.names)}.",
            cure="Correct the schema, or take the file away.",
        )
    for field in schema:
        name = names[field.name]
        type_ = field.type if name is None else found.field(name).type
        if name is not None and not fits(type_, field.type):
            raise InputError(
                f"{path}: column {name!r} is {type_}, which cannot be read as {field.type}.",
                cure="Give the schema the type that the files have, or write the file anew"
                + ', with times in microseconds: coerce_timestamps="us" of pandas and pyarrow.'
                if _has_nanoseconds(type_)
                else ".",
            )
    return all(
        name in found.names and _alike(found.field(name).type, schema.field(name).type) for name in names
    )


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a file's type is one of the wanted type, and both engines read it as that. Spark has no nanoseconds."""
    if _has_nanoseconds(found):
        return False
    found = spark_type(found) if not pa.types.is_null(found) else wanted
    if found == wanted or (_is_text(found) and _is_text(wanted)):
        return True
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found) or (pa.types.is_date(found) and wanted.tz is None))
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        known = {field.name: field.type for field in found}
        return all(field.name not in known or fits(known[field.name], field.type) for field in wanted)
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return fits(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return fits(found.key_type, wanted.key_type) and fits(found.item_type, wanted.item_type)
    return _fits_number(found, wanted)


def _has_nanoseconds(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return bool(type_.unit == "ns")
    return any(_has_nanoseconds(type_.field(number).type) for number in range(type_.num_fields))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _fits_number(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_integer(found):
        bits, digits = found.bit_width, 10 if found.bit_width <= 32 else 20
        if pa.types.is_integer(wanted):
            return bool(bits <= wanted.bit_width)
        if pa.types.is_decimal(wanted):
            return bool(wanted.precision - wanted.scale >= digits)
        return bool(wanted == pa.float64() and bits <= 32)
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        return bool(whole and wanted.scale >= found.scale)
    return bool(found == pa.float32() and wanted == pa.float64())


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(wanted):
        # A time with zone is an instant in both; one without is left to Spark, which may shift it.
        return (
            pa.types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None) and found.unit == "us"
        )
    return bool(found == wanted)
