"""Two tables of rows compared: by key, or row by row where there are no keys. No loop per row.

Values of any type are compared by *codes*: equal numbers for equal values, exact, in columns that are put one below the
other. Lists and structs become bytes made of the codes of what is in them, and those get codes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.arrays import lengths
from holdfast.state.columns.grouping import Bools, comparable, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64


@dataclass(frozen=True, slots=True)
class Matched:
    """Numbers of rows: only in the second table, in both with other values (pairwise), only in the first."""

    added: I64
    changed_before: I64
    changed_after: I64
    removed: I64


def match_by_key(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> Matched:
    """Each key is at most once in each table. Tables whose columns differ have no equal values."""
    names = [HASH_COLUMN, *keys]
    same_keys = before.select(names).schema.equals(after.select(names).schema)
    if not same_keys:
        return Matched(np.arange(after.num_rows), _none(), _none(), np.arange(before.num_rows))
    both = [
        single(column) for column in pa.concat_tables([before.select(names), after.select(names)]).columns
    ]
    grouping = group_rows(as_int64(both[0]), both[1:])  # stable: the row from before comes first
    sizes = np.diff(grouping.starts, append=len(grouping.order))
    paired = grouping.starts[sizes == 2]
    old, new = grouping.order[paired], grouping.order[paired + 1] - before.num_rows
    alone = grouping.order[grouping.starts[sizes == 1]]
    differ = ~_same_values(before, old, after, new, set(names))
    removed, added = alone[alone < before.num_rows], alone[alone >= before.num_rows] - before.num_rows
    return Matched(np.sort(added), old[differ], new[differ], np.sort(removed))


def match_rows(before: pa.Table, after: pa.Table) -> Matched:
    """Rows without keys, each as often as it occurs: there are none that changed."""
    if not before.schema.equals(after.schema):
        return Matched(np.arange(after.num_rows), _none(), _none(), np.arange(before.num_rows))
    both = pa.concat_tables([before, after])
    numbers = _joined_codes([codes(single(column)) for column in both.columns], both.num_rows)
    order = np.argsort(numbers, kind="stable")
    ordered, is_old = numbers[order], order < before.num_rows
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(order) else order
    sizes = np.diff(starts, append=len(order))
    old = np.add.reduceat(is_old.astype(np.int64), starts) if len(order) else sizes
    shared = np.minimum(old, sizes - old)
    within = np.arange(len(order)) - np.repeat(starts, sizes)
    # In each group the rows from before come first: of either side the first `shared` ones have a partner.
    place = np.where(is_old, within, within - np.repeat(old, sizes))
    alone = place >= np.repeat(shared, sizes)
    removed, added = order[alone & is_old], order[alone & ~is_old] - before.num_rows
    return Matched(np.sort(added), _none(), _none(), np.sort(removed))


def _none() -> I64:
    return np.zeros(0, dtype=np.int64)


def _same_values(before: pa.Table, old: I64, after: pa.Table, new: I64, keys: set[str]) -> Bools:
    same = np.ones(len(old), dtype=np.bool_)
    if not before.schema.equals(after.schema):
        return ~same
    for name in before.schema.names:
        if name not in keys:
            left, right = (
                single(column).take(pa.array(rows))
                for column, rows in ((before.column(name), old), (after.column(name), new))
            )
            found = codes(pa.concat_arrays([left, right]))
            same &= found[: len(old)] == found[len(old) :]
    return same


# --- codes ------------------------------------------------------------------------------------------------------------

_CODE_BYTES = 8


def codes(column: pa.Array) -> I64:
    """A number for each value; equal values have equal ones. Null equals null, NaN equals NaN."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_struct(kind):
        fields = [codes(column.field(number)) for number in range(kind.num_fields)]
        return _numbered(_joined_codes(fields, len(column)), column)
    if pa.types.is_map(kind):
        return codes(column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_codes(column)
    return _leaf_codes(comparable(column))


def _leaf_codes(column: pa.Array) -> I64:
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _list_codes(column: pa.Array) -> I64:
    """A list as the bytes of its elements' codes."""
    sizes = lengths(column)
    elements = np.ascontiguousarray(codes(column.flatten()))
    offsets = np.concatenate(([0], np.cumsum(sizes))) * _CODE_BYTES
    packed = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(elements)]
    )
    return _numbered(_leaf_codes(packed), column)


def _numbered(numbers: I64, column: pa.Array) -> I64:
    """Codes of the values that are there, and one of its own for null."""
    if not column.null_count:
        return numbers
    return np.where(np.asarray(column.is_null().to_numpy(zero_copy_only=False)), -1, numbers)


def _joined_codes(columns: Sequence[I64], rows: int) -> I64:
    """One code for the codes of several columns."""
    if not columns:
        return np.zeros(rows, dtype=np.int64)
    if len(columns) == 1:
        return columns[0]
    matrix = np.ascontiguousarray(np.stack(columns, axis=1))
    width = _CODE_BYTES * len(columns)
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(matrix)])
    return _leaf_codes(packed)
