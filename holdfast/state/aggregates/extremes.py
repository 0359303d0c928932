"""Smallest and largest value of each run, for every type with an order.

The order is Spark's: NaN above all numbers, strings and binaries by their bytes, false before true; in addition -0.0
stands before 0.0, so that the answer does not depend on which came first.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.aggregates import wide_sums
from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64, decimal_words

_LONGEST_DECIMAL_IN_A_LONG = 18
_SIGN_FREE = np.int64(0x7FFFFFFFFFFFFFFF)


def has_order(kind: pa.DataType) -> bool:
    return any(
        fits(kind)
        for fits in (
            pa.types.is_signed_integer,
            pa.types.is_float32,
            pa.types.is_float64,
            pa.types.is_boolean,
            pa.types.is_decimal128,
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_date32,
            pa.types.is_timestamp,
        )
    )


def extreme(array: pa.Array, runs: Runs, *, largest: bool) -> pa.Array:
    """The largest (or smallest) value of each run, nulls left out; null where there is none."""
    valid = wide_sums.valid_flags(array)
    found = runs.any(valid)
    codes = _ordered_codes(array)
    if codes is not None and not runs.running and runs.rows:
        fill = np.iinfo(np.int64)
        codes = np.where(valid, codes, fill.min if largest else fill.max)
        reduce = np.maximum.reduceat if largest else np.minimum.reduceat
        return _from_codes(np.asarray(reduce(codes, runs.starts)), array.type, found)
    ranks = _dense_ranks(array if codes is None else pa.array(codes, mask=~valid))
    row_of_rank = np.zeros(runs.rows + 2, dtype=np.int64)
    row_of_rank[ranks] = np.arange(runs.rows)
    place = ranks if largest else runs.rows + 1 - ranks
    best = runs.largest(np.where(valid, place, 0))
    rows = row_of_rank[best if largest else runs.rows + 1 - best]
    return array.take(pa.array(rows, mask=~found))


def order_codes(array: pa.Array) -> I64:
    """Integers in the order of the values, the same for the same ones; what stands at nulls is arbitrary."""
    codes = _ordered_codes(array)
    return _dense_ranks(array) if codes is None else codes


def _dense_ranks(array: pa.Array) -> I64:
    """1 for the smallest value, equal values alike; nulls last."""
    return np.asarray(pc.rank(array, tiebreaker="dense").to_numpy(zero_copy_only=False)).astype(np.int64)


def _ordered_codes(array: pa.Array) -> I64 | None:
    """Integers in the order of the values; None for types that do not fit into 64 bits."""
    kind = array.type
    if pa.types.is_decimal128(kind):
        return (
            decimal_words(array)[0].view(np.int64) if kind.precision <= _LONGEST_DECIMAL_IN_A_LONG else None
        )
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return None
    if pa.types.is_floating(kind):
        floats = np.array(array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False))
        floats[np.isnan(floats)] = np.nan
        return _turned(floats.view(np.int64))
    if pa.types.is_date32(kind):
        array = array.view(pa.int32())
    return np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _turned(bits: I64) -> I64:
    """Bits of doubles ↔ integers in the same order: negative numbers are turned round."""
    return bits ^ ((bits >> np.int64(63)) & _SIGN_FREE)


def _from_codes(codes: I64, kind: pa.DataType, found: Bools) -> pa.Array:
    mask = None if found.all() else ~found
    if pa.types.is_decimal128(kind):
        return wide_sums.to_decimals(wide_sums.from_ints(codes), kind, found)
    if pa.types.is_floating(kind):
        return pa.array(_turned(codes).view(np.float64), mask=mask, from_pandas=False).cast(kind)
    values = np.where(found, codes, 0)
    if pa.types.is_date32(kind):
        return pa.array(values.astype(np.int32), mask=mask).cast(kind)
    return pa.array(values, mask=mask).cast(kind)
