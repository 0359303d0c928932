"""State rows of an earlier form of an operator: columns that are new are filled in, columns that are gone are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.errors import MismatchError
from holdfast.state.aggregates.accumulator import Accumulator
from holdfast.state.aggregates.accumulators import Count
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.aggregates.ordered_values import AtEnd
from holdfast.state.columns.arrays import lengths, packed
from holdfast.state.columns.hashing import plain


def evolved(table: pa.Table, wanted: pa.Schema, new: dict[str, pa.Array], what: str) -> pa.Table:
    """The rows with the columns `wanted`. `new`: what to fill in for columns; others are null. MismatchError if a column
    has another type now, or is new and may not be null."""
    columns = []
    for field in wanted:
        index = table.schema.get_field_index(field.name)
        if index >= 0:
            columns.append(_evolved_column(table.column(index), field, what))
        elif field.name in new:
            columns.append(new[field.name])
        elif field.nullable:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            raise MismatchError(
                f"{what}: the column {field.name!r} is new, and rows kept from before have no value for it.",
                cure="Let it be null, or start with a new store.",
            )
    return pa.Table.from_arrays(columns, schema=wanted)


def _evolved_column(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray | pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_list(field.type) and pa.types.is_list(column.type):
        lists = plain(column)
        values = _evolved_value(lists.flatten(), field.type.value_type, field.name, what)
        return packed(values, lengths(lists))
    return _evolved_value(plain(column), field.type, field.name, what)


def _evolved_value(array: pa.Array, kind: pa.DataType, name: str, what: str) -> pa.Array:
    """Values in their new type: of whole rows columns may come and go, the rest stays as it is."""
    if array.type == kind:
        return array
    if not (pa.types.is_struct(kind) and pa.types.is_struct(array.type)):
        raise MismatchError(
            f"{what}: the column {name!r} was of type {array.type} and is {kind} now.",
            cure="Undo the change, or give the column a new name: it then begins without values.",
        )
    had = {field.name for field in array.type}
    fields = [
        _evolved_value(array.field(field.name), field.type, field.name, what)
        if field.name in had
        else pa.nulls(len(array), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(
        fields, fields=list(kind), mask=array.is_null() if array.null_count else None
    )


def evolved_sums(table: pa.Table, aggregation: Aggregation, what: str) -> pa.Table:
    """State rows of aggregates: those that are new have seen nothing yet."""
    wanted = aggregation.state_schema
    if table.schema.equals(wanted):
        return table
    return evolved(table, wanted, of_nothing(aggregation, table.num_rows), what)


def of_nothing(aggregation: Aggregation, rows: int) -> dict[str, pa.Array]:
    """What aggregates keep that have not seen a row yet, by state column."""
    found: dict[str, pa.Array] = {}
    for (output, _, name), acc in zip(aggregation.aggregates, aggregation.accumulators, strict=True):
        kind = None if name is None else aggregation.schema.field(name).type
        for (part, part_kind), column in zip(acc.parts, _nothing(acc, kind, rows), strict=True):
            found[f"__hf_{output}.{part}"] = column.cast(part_kind)
    return found


def _nothing(acc: Accumulator, kind: pa.DataType | None, rows: int) -> list[pa.Array]:
    if isinstance(acc, AtEnd):  # every real position comes later than the first, or earlier than the last
        limits = np.iinfo(np.int64)
        place = pa.array(np.full(rows, limits.min if acc.last else limits.max))
        return [pa.nulls(rows, acc.kind), place, place]
    if isinstance(acc, Count):
        return [pa.array(np.zeros(rows, dtype=np.int64))]
    if kind is None:
        return [pa.nulls(rows, part) for _, part in acc.parts]
    if any(pa.types.is_list(part) or pa.types.is_large_list(part) for _, part in acc.parts):
        return [_empty(part, rows) for _, part in acc.parts]
    return acc.lift(pa.nulls(rows, kind), rows)


def _empty(kind: pa.DataType, rows: int) -> pa.Array:
    """Empty lists, and false for flags beside them."""
    if pa.types.is_boolean(kind):
        return pa.array(np.zeros(rows, dtype=np.bool_))
    return pa.array([[]], kind).take(pa.array(np.zeros(rows, dtype=np.int64)))
