"""Reading slices of Parquet files in tasks, by pyarrow, without Spark's reader: only the row groups they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, Stamp
from holdfast.sources.file_plan import FilePiece


@dataclass(frozen=True)
class ParquetReader:
    """Reads pieces of files whose columns have exactly the types of `schema`."""

    pieces: tuple[FilePiece, ...]
    schema: pa.Schema
    stamp: Stamp | None

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        wanted = [name for name in columns if name not in POSITION_COLUMNS]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        stamped = len(wanted) != len(columns)
        parts = [self._read(piece, schema, stamped) for piece in self.pieces]
        if not parts:
            schema = pa.schema([*schema, *POSITION_FIELDS]) if stamped else schema
            return schema.empty_table().select(list(columns))
        return pa.concat_tables(parts).select(list(columns))

    def _read(self, piece: FilePiece, schema: pa.Schema, stamped: bool) -> pa.Table:
        with pq.ParquetFile(piece.path) as file:
            groups, skipped = groups_of(file.metadata, piece)
            table = file.read_row_groups(groups, columns=schema.names, use_threads=False)
        end = None if piece.end is None else piece.end.row - skipped
        table = table.slice(
            piece.begin.row - skipped, None if end is None else end - piece.begin.row + skipped
        )
        table = table.select(schema.names).cast(schema)
        if not stamped:
            return table
        assert self.stamp is not None
        source = np.full(table.num_rows, self.stamp.source_index, dtype=np.int32)
        ordinal = np.full(table.num_rows, piece.ordinal, dtype=np.int64)
        row = np.arange(piece.begin.row, piece.begin.row + table.num_rows, dtype=np.int64)
        for field, values in zip(POSITION_FIELDS, (source, ordinal, row), strict=True):
            table = table.append_column(field, pa.array(values))
        return table


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


def readable(path: str, schema: pa.Schema) -> bool:
    """Whether the file has the schema's columns in types that pyarrow and Spark read alike."""
    found = pq.read_schema(path)
    return all(
        (index := found.get_field_index(field.name)) >= 0 and _alike(found.field(index).type, field.type)
        for field in schema
    )


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(wanted):
        # A time with zone is an instant in both; one without is left to Spark, which may shift it.
        return (
            pa.types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None) and found.unit == "us"
        )
    return bool(found == wanted)
