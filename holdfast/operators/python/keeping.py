"""Keeping what the user's code gave, or is about to get: it may go on to change the very objects.

A row is kept until its step ends, and its operator may use the same list for the next one. Only values that somebody can change
are copied, so rows of numbers and texts cost nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

Keep = Callable[[Any], Any]


def row_keeper(schema: pa.Schema) -> Callable[[Sequence[Any]], list[Any]] | None:
    """What gives the values of a row as they are now; None: nobody can change a value of such rows."""
    found = [(place, keeper(field.type)) for place, field in enumerate(schema)]
    keeps = [(place, keep) for place, keep in found if keep is not None]

    def values_of(row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for place, keep in keeps:
            values[place] = keep(values[place])
        return values

    return values_of if keeps else None


def keeper(kind: pa.DataType) -> Keep | None:
    """What makes a copy of a value of this type; None: there is nothing in it that changes."""
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _bytes
    if types.is_struct(kind):
        inner = {field.name: keeper(field.type) for field in kind}
        return partial(_struct, {name: keep for name, keep in inner.items() if keep is not None})
    if types.is_nested(kind):
        return partial(_list, keeper(kind.value_type)) if _is_list(kind) else copy.deepcopy
    return None


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _list(inner: Keep | None, value: Any) -> Any:
    if type(value) is list or type(value) is tuple:
        return value[:] if inner is None else [inner(each) for each in value]
    return copy.deepcopy(value)  # None; an array of NumPy


def _struct(inner: dict[str, Keep], value: Any) -> Any:
    if type(value) is not dict:
        return copy.deepcopy(value)
    return {name: inner[name](each) if name in inner else each for name, each in value.items()}


def kept_table(table: pa.Table) -> pa.Table:
    """The table in memory of its own: what was made of arrays of NumPy or of a DataFrame shares theirs."""
    columns = [_kept_column(column) if _is_shared(column.type) else column for column in table.columns]
    return pa.table(columns, schema=table.schema)


def _is_shared(kind: pa.DataType) -> bool:
    """Whether arrays of it can lie in memory of NumPy's."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_nested(kind))


def _kept_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not column.num_chunks:
        return column
    # Two pieces at least: one alone would be given back as it is.
    pieces = [*column.chunks, column.chunk(0).slice(0, 0)]
    return pa.chunked_array([pa.concat_arrays(pieces)], type=column.type)
