"""Python values as Arrow columns. What a column cannot hold as it is, is refused; Arrow alone would change it in silence: 1.5
becomes 1 in a long, a number a moment of 1970 in a timestamp, a field that a struct does not have nothing.

What Arrow takes without a change is told by the types of the values, of which a column has few: they are looked at once
(`Family.plain`). Only values of other types are looked at one by one.

What a column holds: whole numbers of any sort, also 2.0; in a double and a decimal whole numbers too; a `datetime` in a
timestamp, without a zone as one of UTC; a `datetime` at midnight in a date; scalars of NumPy and Arrow like the values they stand for.
A double that a float rounds stays, as bytes that are text do in a string.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from holdfast.state.columns.python_families import Family, Refused, article, family, standing_for

_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_LONGEST = 200


class Unfit(ValueError):
    """A value that its column cannot hold. `row`: its place among the values; `path`: the column, with fields inside of it."""

    def __init__(self, path: str, kind: pa.DataType, value: Any, why: str, row: int) -> None:
        self.path, self.kind, self.value, self.why, self.row = path, kind, value, why, row
        super().__init__(f"column {path!r} of type {kind} cannot hold {shown(value)}: {why}")


def shown(value: Any) -> str:
    """A value for people, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def column_of(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """The values as a column of the field's type. Unfit tells the first that it cannot hold."""
    return _nullable(_array(values, field.type, field.name), field, field.name, values)


def near(name: str, names: Iterable[str]) -> str:
    """A question after the name that was probably meant, or nothing."""
    found = difflib.get_close_matches(str(name), list(names), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _array(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    make = _nested(kind)
    return _flat(values, kind, path) if make is None else make(values, kind, path)


def _flat(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    of = family(kind)
    types = set(map(type, values))
    if not of.plain.issuperset(types):
        values = _faithful(values, of, kind, path)
    try:
        found = of.made(values, kind)
    except _ARROW_ERRORS:
        raise _first_unfit(values, of, kind, path) from None
    row = of.changed(values, found) if of.doubtful is None or of.doubtful & types else None
    if row is not None:
        raise Unfit(path, kind, values[row], of.why, row)
    return found


def _faithful(values: Sequence[Any], of: Family, kind: pa.DataType, path: str) -> list[Any]:
    """Values that Arrow takes as they are, in the place of others that mean the same."""
    faithful = []
    for row, value in enumerate(values):
        if type(value) not in of.plain:
            try:
                value = of.faithful(standing_for(value))
            except Refused as refused:
                raise Unfit(path, kind, value, str(refused), row) from None
        faithful.append(value)
    return faithful


def _first_unfit(values: Sequence[Any], of: Family, kind: pa.DataType, path: str) -> Unfit:
    """What Arrow refused, told with the value."""
    for row, value in enumerate(values):
        try:
            of.made([value], kind)
        except _ARROW_ERRORS as error:
            return Unfit(path, kind, value, str(error).rstrip("."), row)
    return Unfit(path, kind, None, "its values do not go together", 0)


def _nullable(found: pa.Array, field: pa.Field, path: str, values: Sequence[Any]) -> pa.Array:
    if not field.nullable and found.null_count:
        row = found.is_null().index(True).as_py()
        raise Unfit(path, field.type, values[row], "it is declared NOT NULL", row)
    return found


# --- values of several parts ---

_Make = Callable[[Sequence[Any], pa.DataType, str], pa.Array]


def _nested(kind: pa.DataType) -> _Make | None:
    if pt.is_struct(kind):
        return _structs
    if pt.is_map(kind):
        return _maps
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _lists
    return None


def _structs(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    rows = values
    if not {dict, type(None)}.issuperset(map(type, values)):
        rows = [_as_dict(value, kind, path, row) for row, value in enumerate(values)]
    empty = _empty(rows)
    if not set(chain.from_iterable(rows if empty is None else filter(None, rows))).issubset(kind.names):
        raise _unknown_field(rows, kind, path)
    if not len(kind):
        return pa.array(rows, kind)
    columns = [_field_of(rows, field, f"{path}.{field.name}") for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=empty)


def _field_of(rows: Sequence[dict[str, Any] | None], field: pa.Field, path: str) -> pa.Array:
    """One field of structs, also of those that are null."""
    try:
        values = list(map(itemgetter(field.name), rows))  # type: ignore[arg-type]
    except (KeyError, TypeError):  # one lacks it, or is null
        values = [None if row is None else row.get(field.name) for row in rows]
    found = _array(values, field.type, path)
    if not field.nullable and found.null_count:
        for number, row in enumerate(rows):
            if row is not None and values[number] is None:
                raise Unfit(path, field.type, None, "it is declared NOT NULL", number)
    return found


def _as_dict(value: Any, kind: pa.DataType, path: str, row: int) -> Any:
    """A struct as a dict: named tuples and `Row`s by name, other tuples by order."""
    if value is None or type(value) is dict:
        return value
    value = _opened(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None) or getattr(value, "__fields__", None) or kind.names
        if len(names) == len(value):
            return dict(zip(names, value, strict=True))
    raise Unfit(path, kind, value, f"give a dict with the fields {', '.join(kind.names)}", row)


def _unknown_field(rows: Sequence[Any], kind: pa.DataType, path: str) -> Unfit:
    for row, value in enumerate(rows):
        for name in value or ():
            if name not in kind.names:
                why = f"it has no field {name!r}.{near(name, kind.names)}"
                return Unfit(path, kind, value, why.rstrip("."), row)
    raise AssertionError("all fields are known")


def _lists(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    if not {list, tuple, type(None)}.issuperset(map(type, values)):
        values = [_as_list(value, kind, path, row) for row, value in enumerate(values)]
    sizes = _sizes(values)
    flat = list(chain.from_iterable(filter(None, values)))
    elements = _inside(flat, kind.value_field, f"{path}[]", sizes)
    if pt.is_fixed_size_list(kind):
        try:
            return pa.array(values, kind)  # each element is known to fit
        except _ARROW_ERRORS as error:
            row = next(r for r, each in enumerate(values) if each is not None and len(each) != kind.list_size)
            raise Unfit(path, kind, values[row], str(error), row) from None
    whole = pa.ListArray if pt.is_list(kind) else pa.LargeListArray
    return whole.from_arrays(_offsets(sizes, kind), elements, type=kind, mask=_empty(values))


def _maps(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    if not {dict, type(None)}.issuperset(map(type, values)):
        values = [_as_mapping(value, kind, path, row) for row, value in enumerate(values)]
    sizes, there = _sizes(values), [value for value in values if value]
    flat_keys = list(chain.from_iterable(there))
    flat_items = list(chain.from_iterable(map(dict.values, there)))
    keys = _inside(flat_keys, pa.field("key", kind.key_type, False), f"{path}.key", sizes)
    items = _inside(flat_items, kind.item_field, f"{path}.value", sizes)
    return pa.MapArray.from_arrays(_offsets(sizes, kind), keys, items, type=kind, mask=_empty(values))


def _inside(flat: Sequence[Any], field: pa.Field, path: str, sizes: np.ndarray[Any, Any]) -> pa.Array:
    """Elements as a column; what does not fit is told with the row that it is in."""
    try:
        return _nullable(_array(flat, field.type, path), field, path, flat)
    except Unfit as unfit:
        row = int(np.searchsorted(np.cumsum(sizes), unfit.row, side="right"))
        raise Unfit(unfit.path, unfit.kind, unfit.value, unfit.why, row) from None


def _as_list(value: Any, kind: pa.DataType, path: str, row: int) -> Collection[Any] | None:
    if value is None or isinstance(value, list | tuple):
        return value
    value = _opened(value)
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value) if value.dtype.kind in "mM" else list(value.tolist())
    fits = not isinstance(value, str | bytes | bytearray | memoryview | Mapping)
    if fits and hasattr(value, "__len__") and hasattr(value, "__iter__"):
        return list(value)
    raise Unfit(path, kind, value, f"{article(value)} is no list", row)


def _as_mapping(value: Any, kind: pa.DataType, path: str, row: int) -> dict[Any, Any] | None:
    if value is None or type(value) is dict:
        return value
    value = _opened(value)
    try:
        found = dict(value)
        if isinstance(value, Mapping) or len(found) == len(value):
            return found
    except (TypeError, ValueError):
        pass
    raise Unfit(path, kind, value, "give a dict, or a list of pairs with different keys", row)


def _opened(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _sizes(values: Sequence[Collection[Any] | None]) -> np.ndarray[Any, Any]:
    found = [() if value is None else value for value in values]
    return np.fromiter(map(len, found), np.int64, len(values))


def _offsets(sizes: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.array(ends, pa.int64() if pt.is_large_list(kind) else pa.int32())


def _empty(values: Sequence[Any]) -> pa.Array | None:
    """Which are null; None: none is."""
    if type(None) not in set(map(type, values)):
        return None
    return pa.array([value is None for value in values])
