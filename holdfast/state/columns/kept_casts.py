"""Tables that users made, with the types of a schema: a cast that would change values is refused, as for Python values
(`from_python.py`). Arrow refuses most of them by itself; here is what it does in silence."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from holdfast.state.columns.from_python import Unfit, near

_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError)


def cast_to(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the schema, which the table has. Unfit tells a value that its column cannot hold."""
    columns = [_cast(table.column(field.name), field) for field in schema]
    return pa.table(columns, schema=schema)


def _cast(given: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not field.nullable and given.null_count:
        row = pc.index(given.is_null(), True).as_py()
        raise Unfit(field.name, field.type, None, "it is declared NOT NULL", row)
    if given.type == field.type:
        return given
    if pt.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    _refuse_changes(given, field.type, field.name)
    try:
        return given.cast(field.type)
    except _ARROW_ERRORS as error:
        why = str(error).rstrip(".")
        raise _unfit(given, given.is_valid(), field.type, field.name, why) from error


def _refuse_changes(given: pa.ChunkedArray, kind: pa.DataType, path: str) -> None:
    """Unfit if values would come out as others."""
    had = given.type
    if had == kind or given.null_count == len(given):
        return
    if pt.is_struct(had) and pt.is_struct(kind):
        for field in had:
            if field.name not in kind.names:
                why = f"it has no field {field.name!r}.{near(field.name, kind.names)}".rstrip(".")
                raise _unfit(given, given.is_valid(), kind, path, why)
            inner = pc.struct_field(given, field.name)
            _refuse_changes(inner, kind.field(field.name).type, f"{path}.{field.name}")
    elif pt.is_map(had) and pt.is_map(kind):
        for chunk in given.chunks:
            _refuse_changes(pa.chunked_array([chunk.keys]), kind.key_type, f"{path}.key")
            _refuse_changes(pa.chunked_array([chunk.items]), kind.item_type, f"{path}.value")
    elif pt.is_nested(had) and pt.is_nested(kind):
        _refuse_changes(pc.list_flatten(given), kind.value_type, f"{path}[]")
    else:
        _refuse_flat(given, kind, path)


def _refuse_flat(given: pa.ChunkedArray, kind: pa.DataType, path: str) -> None:
    had = given.type
    if (_is_number(had) and pt.is_temporal(kind)) or (pt.is_temporal(had) and _is_number(kind)):
        why = f"a column of type {had} is none of times" if pt.is_temporal(kind) else "a time is no number"
        raise _unfit(given, given.is_valid(), kind, path, why)
    if pt.is_floating(had) and pt.is_floating(kind):
        changed = pc.and_(pc.is_inf(given.cast(kind, safe=False)), pc.is_finite(given))
        _refuse_where(changed, given, kind, path, "it is too large")
    is_cut = pt.is_timestamp(had) and pt.is_date(kind)
    if is_cut or (pt.is_floating(had) and pt.is_decimal(kind)) or (_is_number(had) and pt.is_boolean(kind)):
        back = given.cast(kind, safe=False).cast(had, safe=False)
        why = "its time of day would be lost" if is_cut else "it would be changed"
        _refuse_where(pc.not_equal(given, back), given, kind, path, why)


def _refuse_where(
    changed: pa.ChunkedArray, given: pa.ChunkedArray, kind: pa.DataType, path: str, why: str
) -> None:
    if pc.any(changed).as_py():
        raise _unfit(given, changed, kind, path, why)


def _unfit(given: pa.ChunkedArray, where: pa.ChunkedArray, kind: pa.DataType, path: str, why: str) -> Unfit:
    row = max(0, pc.index(where, True).as_py())
    return Unfit(path, kind, given[row].as_py() if len(given) else None, why, row)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))
