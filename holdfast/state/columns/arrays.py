"""Between Arrow columns and NumPy: numbers with their nulls, and lists with what is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import StateError
from holdfast.state.aggregates.double_sums import F64
from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64, plain

_MOST_ELEMENTS = 2**31 - 1


def ints(array: pa.Array) -> I64:
    """The numbers as int64, zero where null."""
    return np.asarray(_filled(array, 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def floats(array: pa.Array) -> F64:
    """The numbers as doubles, zero where null."""
    return np.asarray(_filled(array, 0.0).to_numpy(zero_copy_only=False), dtype=np.float64)


def _filled(array: pa.Array, value: float) -> pa.Array:
    return pc.fill_null(array, pa.scalar(value, array.type)) if array.null_count else array


def masked(values: I64 | F64, valid: Bools) -> pa.Array:
    """The numbers as a column, null where not valid."""
    return pa.array(values, mask=None if valid.all() else ~valid, from_pandas=False)


def doubles(array: pa.Array) -> pa.Array:
    """Numbers of any type as doubles, the nearest where digits do not fit."""
    return array.cast(pa.float64(), safe=False)


def is_number(kind: pa.DataType) -> bool:
    """Whether `doubles` takes it: numbers as Spark knows them."""
    fits = (pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal128)
    return any(fit(kind) for fit in fits)


# --- times ----------------------------------------------------------------------------------------------------------


def in_utc(rows: pa.Table) -> pa.Table:
    """The same rows; times that have a zone have it in UTC, as everywhere in plans and state. Spark hands rows to Python in the
    zone of its session."""
    schema = pa.schema([field.with_type(_utc(field.type)) for field in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, tz="UTC") if kind.tz else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_utc(kind.key_type), kind.item_field.with_type(_utc(kind.item_type)))
    return kind


# --- lists ----------------------------------------------------------------------------------------------------------


def list_of(kind: pa.DataType) -> pa.DataType:
    """Spark's name for what is in a list is `element`."""
    return pa.list_(pa.field("element", kind))


def lengths(lists: pa.Array) -> I64:
    return ints(pc.list_value_length(lists))


def within(sizes: I64) -> I64:
    """The place of each element in its list, from 0 on, of lists of these sizes one behind the other."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def packed(elements: pa.Array, sizes: I64) -> pa.Array:
    """Lists of these sizes out of elements that lie one list behind the other. StateError beyond 2^31 elements."""
    if len(elements) > _MOST_ELEMENTS:
        raise StateError(
            f"lists with {len(elements)} elements together do not fit into one column.",
            cure="Use more partitions or smaller steps, or aggregate less into one key.",
        )
    ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), elements, type=list_of(elements.type))


def singletons(column: pa.Array, valid: Bools) -> pa.Array:
    """Each value as a list of its own; an empty list where not valid."""
    return packed(column if valid.all() else column.filter(pa.array(valid)), valid.astype(np.int64))


def run_of_elements(lists: pa.Array, runs: Runs) -> I64:
    """The run to which each element of the lists belongs."""
    return np.repeat(runs.ids, lengths(lists))


def packed_by_run(elements: pa.Array, run: I64, runs: Runs) -> pa.Array:
    """One list per run out of elements that ascend by run."""
    return packed(elements, np.bincount(run, minlength=len(runs.starts)))


def refuse_running(runs: Runs, function: str) -> None:
    """Lists per row are refused when compiling; here nobody may ask for them."""
    if runs.running:
        raise StateError(f"{function} gives no value per row.", cure="Use emit='changes'.")


def unique_in_runs(run: I64, codes: I64) -> tuple[I64, I64]:
    """(elements ordered by run and code, where in that order each different one begins)."""
    order: Any = np.arange(len(run))
    if not _ascends(run, codes):
        order = np.lexsort((codes, run))
        run, codes = run[order], codes[order]
    new = np.ones(len(run), dtype=np.bool_)
    new[1:] = (run[1:] != run[:-1]) | (codes[1:] != codes[:-1])
    return order, np.flatnonzero(new)


def _ascends(run: I64, codes: I64) -> bool:
    before, after = run[:-1], run[1:]
    return bool(((before < after) | ((before == after) & (codes[:-1] <= codes[1:]))).all())


def row_type(schema: pa.Schema) -> pa.DataType:
    """The type of a whole row."""
    return pa.struct([pa.field(field.name, plain(pa.array([], field.type)).type) for field in schema])


def whole_rows(rows: pa.Table, kind: pa.DataType) -> pa.Array:
    """The rows as values of that type."""
    columns = [plain(rows.column(field.name)).cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))
