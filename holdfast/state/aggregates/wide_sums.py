"""Exact sums and quotients of integers and decimals, 128 bits wide, as limbs in NumPy.

A wide number is a pair of words (low: uint64, high: int64), two's complement, as Arrow stores decimals.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64, U64, decimal_words, null_mask

Wide = tuple[U64, I64]

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def from_ints(values: I64) -> Wide:
    return values.view(np.uint64), values >> np.int64(63)


def from_decimals(array: pa.Array) -> Wide:
    """Unscaled values; zero where null."""
    return decimal_words(array)


def to_decimals(wide: Wide, kind: pa.DataType, valid: Bools) -> pa.Array:
    """The words as decimals of type `kind`; the caller has made sure that they fit."""
    words = np.empty((len(valid), 2), dtype=np.uint64)
    words[:, 0], words[:, 1] = wide[0], wide[1].view(np.uint64)
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(valid), [validity, pa.py_buffer(words)])


def fits_int64(wide: Wide) -> Bools:
    return np.asarray(wide[1] == (wide[0].view(np.int64) >> np.int64(63)))


def fits_digits(wide: Wide, precision: int) -> Bools:
    """Whether |value| < 10^precision."""
    low, high = magnitude(wide)
    bound = 10**precision
    bound_high, bound_low = np.uint64(bound >> 64), np.uint64(bound & (1 << 64) - 1)
    return np.asarray((high < bound_high) | ((high == bound_high) & (low < bound_low)))


def sum_runs(wide: Wide, runs: Runs) -> tuple[Wide, Bools]:
    """(sums, whether each fits 128 bits). Up to 2^31 rows at a time."""
    low, high = wide
    if _small(wide, runs.rows):
        sums = runs.sum(low.view(np.int64))
        return from_ints(sums), np.ones(len(sums), dtype=np.bool_)
    limbs = [
        (low & _LOW32).view(np.int64),
        (low >> _32).view(np.int64),
        high & np.int64(0xFFFFFFFF),
        high >> np.int64(32),
    ]
    carry: I64 = np.zeros(1, dtype=np.int64)
    parts: list[I64] = []
    for limb in limbs:
        total = runs.sum(limb) + carry
        parts.append(total)
        carry = total >> np.int64(32)
    fits = (parts[3] >= -(1 << 31)) & (parts[3] < 1 << 31)
    unsigned = [part.view(np.uint64) & _LOW32 for part in parts]
    sums_low = unsigned[0] | (unsigned[1] << _32)
    sums_high = unsigned[2] | (unsigned[3] << _32)
    return (sums_low, sums_high.view(np.int64)), fits


def _small(wide: Wide, rows: int) -> bool:
    """Whether no sum of the values can leave 64 bits: the usual case, and a quarter of the work."""
    if not rows or not fits_int64(wide).all():
        return False
    values = wide[0].view(np.int64)
    return max(int(values.max()), -int(values.min())) * rows < 1 << 63


def magnitude(wide: Wide) -> tuple[U64, U64]:
    low, high = wide[0], wide[1].view(np.uint64)
    negative = wide[1] < 0
    flipped_low = ~low + np.uint64(1)
    flipped_high = ~high + (low == 0).astype(np.uint64)
    return np.where(negative, flipped_low, low), np.where(negative, flipped_high, high)


def mean_as_double(wide: Wide, count: I64) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """sum / count, within one unit in the last place."""
    low, high = magnitude(wide)
    total = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
    return np.where(wide[1] < 0, -total, total) / np.maximum(count, 1)


def mean_as_decimal(wide: Wide, count: I64, shift: int) -> tuple[Wide, Bools]:
    """(sum · 10^shift / count rounded half up, whether it fits 128 bits). shift ≤ 4; count < 2^47."""
    low, high = magnitude(wide)
    limbs = [(word >> np.uint64(bit)) & np.uint64(0xFFFF) for word in (low, high) for bit in (0, 16, 32, 48)]
    limbs = _multiplied(limbs, 10**shift)
    divisor = np.maximum(count, 1).astype(np.uint64)
    rest = np.zeros_like(low)
    for place in range(len(limbs) - 1, -1, -1):
        rest = (rest << np.uint64(16)) | limbs[place]
        limbs[place] = rest // divisor
        rest = rest % divisor
    limbs = _carried(limbs, (rest * np.uint64(2) >= divisor).astype(np.uint64))
    result_low, result_high = (_joined(limbs[i : i + 4]) for i in (0, 4))
    fits = (limbs[8] == 0) & (result_high < np.uint64(1 << 63))
    positive: Wide = (result_low, result_high.view(np.int64))
    return _with_sign(positive, wide[1] < 0), fits


def _multiplied(limbs: list[U64], factor: int) -> list[U64]:
    return _carried(
        [limb * np.uint64(factor) for limb in limbs] + [np.zeros_like(limbs[0])], np.zeros_like(limbs[0])
    )


def _carried(limbs: list[U64], carry: U64) -> list[U64]:
    result = []
    for limb in limbs:
        total = limb + carry
        result.append(total & np.uint64(0xFFFF))
        carry = total >> np.uint64(16)
    return result


def _joined(limbs: list[U64]) -> U64:
    low, high = limbs[0] | limbs[1] << np.uint64(16), limbs[2] | limbs[3] << np.uint64(16)
    return np.asarray(low | high << _32)


def _with_sign(positive: Wide, negative: Bools) -> Wide:
    low, high = positive[0], positive[1].view(np.uint64)
    flipped_low = ~low + np.uint64(1)
    flipped_high = ~high + (low == 0).astype(np.uint64)
    signed_high = np.where(negative, flipped_high, high)
    return np.where(negative, flipped_low, low), signed_high.view(np.int64)


def valid_flags(array: pa.Array) -> Bools:
    nulls = null_mask(array)
    return np.ones(len(array), dtype=np.bool_) if nulls is None else ~nulls
