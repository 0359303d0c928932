"""Whole rows as values: a struct with a field per column, so that rows can be kept like anything else."""

from __future__ import annotations

import pyarrow as pa

from holdfast.state.columns.hashing import plain


def row_type(schema: pa.Schema) -> pa.DataType:
    """The type of a whole row."""
    return pa.struct([pa.field(field.name, plain(pa.array([], field.type)).type) for field in schema])


def whole_rows(rows: pa.Table, kind: pa.DataType) -> pa.Array:
    """The rows as values of that type."""
    columns = [plain(rows.column(field.name)).cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))
