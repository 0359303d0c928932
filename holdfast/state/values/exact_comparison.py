"""Exact comparison of two values: same types and same contents at every level, NaN equal to NaN, 0.0 unlike -0.0.

Independent of the encoding on purpose: it judges whether the encoding lost something.
"""

from __future__ import annotations

import dataclasses
import struct
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

SortKey = Callable[[Any], bytes]
"""Orders the elements of a set, so that two sets can be compared pairwise."""


def difference(left: Any, right: Any, sort_key: SortKey) -> str | None:
    """Where the two differ, as a suffix such as "['x'][3]"; "" for the values themselves; None if they are alike."""
    if type(left) is not type(right):
        return ""
    if isinstance(left, dict):
        return _mapping_difference(left, right, sort_key)
    if isinstance(left, list | tuple | deque):
        return _sequence_difference(left, right, sort_key)
    if isinstance(left, set | frozenset):
        return _set_difference(left, right, sort_key)
    if dataclasses.is_dataclass(left):
        return _fields_difference(left, right, sort_key)
    return None if _same_leaf(left, right) else ""


def _mapping_difference(left: dict[Any, Any], right: dict[Any, Any], sort_key: SortKey) -> str | None:
    if len(left) != len(right):
        return ""
    if isinstance(left, defaultdict) and left.default_factory is not right.default_factory:  # type: ignore[attr-defined]
        return ""
    for (key, value), (other_key, other) in zip(left.items(), right.items(), strict=True):
        if difference(key, other_key, sort_key) is not None:
            return f" (key {key!r})"
        place = difference(value, other, sort_key)
        if place is not None:
            return f"[{key!r}]{place}"
    return None


def _sequence_difference(left: Any, right: Any, sort_key: SortKey) -> str | None:
    if len(left) != len(right) or getattr(left, "maxlen", None) != getattr(right, "maxlen", None):
        return ""
    for index, (value, other) in enumerate(zip(left, right, strict=True)):
        place = difference(value, other, sort_key)
        if place is not None:
            return f"[{index}]{place}"
    return None


def _set_difference(left: Any, right: Any, sort_key: SortKey) -> str | None:
    if len(left) != len(right):
        return ""
    pairs = zip(sorted(left, key=sort_key), sorted(right, key=sort_key), strict=True)
    return next((f" (element {a!r})" for a, b in pairs if difference(a, b, sort_key) is not None), None)


def _fields_difference(left: Any, right: Any, sort_key: SortKey) -> str | None:
    missing = object()
    for field in dataclasses.fields(left):
        mine, other = getattr(left, field.name, missing), getattr(right, field.name, missing)
        place = None if mine is other else difference(mine, other, sort_key)
        if place is not None:
            return f".{field.name}{place}"
    return None


def _same_leaf(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray | np.generic):
        return _same_numpy(np.asarray(left), np.asarray(right))
    if type(left) is float:
        return struct.pack("<d", left) == struct.pack("<d", right) or (left != left and right != right)
    if type(left) is complex:
        return _same_leaf(left.real, right.real) and _same_leaf(left.imag, right.imag)
    if type(left).__module__ == "pyarrow.lib":
        return _same_arrow(left, right)
    if type(left).__module__ == "decimal":
        return bool(left.as_tuple() == right.as_tuple())
    if type(left).__module__ == "datetime":
        return _same_time(left, right)
    return bool(left == right)


def _same_numpy(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    order = "F" if left.flags.f_contiguous and not left.flags.c_contiguous else "C"
    kept_order = bool(right.flags.f_contiguous if order == "F" else right.flags.c_contiguous)
    same_kind = left.dtype == right.dtype and left.shape == right.shape
    return same_kind and kept_order and left.tobytes() == right.tobytes()


def _same_time(left: Any, right: Any) -> bool:
    """== on aware times compares instants; what counts here is what is written on them."""
    same_zone = getattr(left, "tzinfo", None) == getattr(right, "tzinfo", None)
    return same_zone and repr(left) == repr(right) and getattr(left, "fold", 0) == getattr(right, "fold", 0)


def _same_arrow(left: Any, right: Any) -> bool:
    if isinstance(left, pa.Schema | pa.Table | pa.RecordBatch) and not _same_schema(left, right):
        return False
    # Arrow holds NaN unlike NaN; its printed form tells NaNs, nulls and values apart.
    return bool(left.equals(right)) or _listing(left) == _listing(right)


def _same_schema(left: Any, right: Any) -> bool:
    mine = left if isinstance(left, pa.Schema) else left.schema
    other = right if isinstance(right, pa.Schema) else right.schema
    return bool(mine.equals(other, check_metadata=True))


def _listing(value: Any) -> str:
    if isinstance(value, pa.Scalar):
        return f"{value.type} {value.as_py()!r}"
    if isinstance(value, pa.Schema):
        return str(value)
    types = value.schema.types if hasattr(value, "schema") else value.type
    return f"{types} {value.to_pylist()!r}"
