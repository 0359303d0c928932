"""The stable hash of a key: a NumPy twin of Spark's `xxhash64`, and the key groups that follow from it.

The hash of the key (c1, c2, …) is `xxhash64(isnull(c1), c1, isnull(c2), c2, …)` with Spark's seed 42: each column's
hash seeds the next, a null leaves the seed as it is, and the null flags keep (null, 'a') apart from ('a', null).
The values are part of the stored format: pinned by golden vectors, never to be changed.

A hash is never a key's identity: whoever looks a key up by it compares the key columns as well.
Keys are compared in canonical form (`canonical_key`): -0.0 is 0.0, every NaN is the one NaN, as in Spark's GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import StateError

HASH_COLUMN = "__hf_hash"
"""Column of every state segment: the key's hash as Spark gives it, int64; segments are sorted by it."""

KEY_GROUPS = 128
SEED = 42

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LONGEST_DECIMAL_IN_A_LONG = 18
_BLOCK = 1 << 15
_MATRIX = 1 << 18


def key_hash(columns: Sequence[pa.Array | pa.ChunkedArray]) -> I64:
    """The hash of each row's key. `columns` in the order of the key; the result is what Spark gives, as int64."""
    if not columns:
        raise StateError("a key needs at least one column.", cure="Name the columns in by=.")
    canonical = [canonical_key(column) for column in columns]
    rows = len(canonical[0])
    if rows <= _BLOCK:
        return _key_hash(canonical, rows)
    # Block by block: what NumPy computes in between stays in the processor's cache.
    hashes = np.empty(rows, dtype=np.int64)
    for first in range(0, rows, _BLOCK):
        block = [array.slice(first, _BLOCK) for array in canonical]
        hashes[first : first + _BLOCK] = _key_hash(block, len(block[0]))
    return hashes


def _key_hash(columns: Sequence[pa.Array], rows: int) -> I64:
    hashes = np.full(1, SEED, dtype=np.uint64)  # one for all rows, as long as nothing tells them apart
    for array in columns:
        if not array.null_count:
            hashes = _hash_column(array, _hash_ints(np.zeros(1, dtype=np.uint64), hashes))
            continue
        nulls = np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False), dtype=np.bool_)
        hashes = _hash_ints(nulls.astype(np.uint64), hashes)
        hashes = np.where(nulls, hashes, _hash_column(array, hashes))
    return np.broadcast_to(hashes, rows).view(np.int64)


def key_group(hashes: I64) -> I64:
    """The key group of each hash: `pmod(hash, KEY_GROUPS)`, never negative."""
    return np.asarray(hashes & np.int64(KEY_GROUPS - 1))  # the same for a power of two, and much faster


def partition_of_group(group: I64, partitions: int) -> I64:
    """Which partition owns each key group. Partitions own contiguous ranges whose sizes differ by at most one."""
    return np.asarray(group, dtype=np.int64) * np.int64(partitions) >> np.int64(KEY_GROUPS.bit_length() - 1)


def owned(hashes: I64, partition: int, partitions: int) -> npt.NDArray[np.bool_]:
    """Whether `partition` owns the group of each hash: the same as `partition_of_group(key_group(…)) == partition`, from
    the bits of a group alone."""
    first, end = (-(-p * KEY_GROUPS // partitions) for p in (partition, partition + 1))
    if first == end:
        return np.zeros(len(hashes), dtype=np.bool_)
    groups = np.ascontiguousarray(hashes, dtype="<i8").view(np.uint8)[::8] & np.uint8(KEY_GROUPS - 1)
    return np.asarray(groups - np.uint8(first) < np.uint8(end - first))  # those below the first wrap around


def canonical_key(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One key column in canonical form: plain layout, -0.0 as 0.0, one NaN."""
    array = plain(column)
    if pa.types.is_float32(array.type) or pa.types.is_float64(array.type):
        return _canonical_floats(array)
    return array


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one chunk in plain layout: no dictionary, no large or view offsets; values as they are."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = _PLAIN.get(array.type)
    return array if kind is None else array.cast(kind)


_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def _canonical_floats(array: pa.Array) -> pa.Array:
    values = np.array(array.fill_null(0).to_numpy(zero_copy_only=False))
    values[values == 0] = 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values, array.type, mask=null_mask(array))


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """True where null; None if nothing is: the form `pa.array(mask=…)` takes."""
    if not array.null_count:
        return None
    return np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False), dtype=np.bool_)


# --- columns --------------------------------------------------------------------------------------------------------


def _hash_column(array: pa.Array, seeds: U64) -> U64:
    """Hash of each value seeded by `seeds` (one for each, or one for all); what stands at nulls is arbitrary."""
    kind = array.type
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return _hash_variable(*_variable_buffers(array), seeds)
    if types.is_decimal128(kind):
        return _hash_decimal(array, seeds)
    if types.is_boolean(kind):
        return _hash_ints(_fixed(array, pa.uint8()), seeds)
    if types.is_int8(kind) or types.is_int16(kind) or types.is_int32(kind):
        return _hash_ints(_fixed(array, pa.int64()), seeds)
    if types.is_date32(kind) or types.is_float32(kind):
        return _hash_ints(_fixed(array.view(pa.int32()), pa.int32()), seeds)
    if types.is_int64(kind) or (types.is_timestamp(kind) and kind.unit == "us"):
        return _hash_longs(_fixed(array, pa.int64()), seeds)
    if types.is_float64(kind):
        return _hash_longs(_fixed(array.view(pa.int64()), pa.int64()), seeds)
    raise StateError(
        f"a column of type {kind} cannot be part of a key.",
        cure="Cast it to a string, number, date or timestamp (microseconds) first.",
    )


def _fixed(array: pa.Array, as_type: pa.DataType) -> U64:
    typed = array.cast(as_type)
    values = (typed.fill_null(0) if typed.null_count else typed).to_numpy(zero_copy_only=False)
    return np.asarray(values).astype(np.int64, copy=False).view(np.uint64)


def _hash_decimal(array: pa.Array, seeds: U64) -> U64:
    """Up to 18 digits: the unscaled long. More: the shortest big-endian two's complement, as Java writes it."""
    low, high = decimal_words(array)
    if array.type.precision <= _LONGEST_DECIMAL_IN_A_LONG:
        return _hash_longs(low, seeds)
    big_endian = np.empty((len(array), 16), dtype=np.uint8)
    big_endian[:, :8] = high.view(np.uint64).astype(">u8").view(np.uint8).reshape(-1, 8)
    big_endian[:, 8:] = low.astype(">u8").view(np.uint8).reshape(-1, 8)
    sign = np.where(high < 0, 0xFF, 0).astype(np.uint8)
    needed = np.ones(len(array), dtype=np.int64)
    for width in range(2, 17):
        # A byte more is needed if dropping the bytes before it would lose digits or turn the sign.
        dropped = big_endian[:, : 17 - width]
        kept_sign = np.where(big_endian[:, 17 - width] >= 0x80, 0xFF, 0).astype(np.uint8)
        needed[(dropped != sign[:, None]).any(axis=1) | (kept_sign != sign)] = width
    ends = np.arange(1, len(array) + 1, dtype=np.int64) * 16
    return _hash_variable(big_endian.reshape(-1), ends - needed, needed, seeds)


def decimal_words(array: pa.Array) -> tuple[U64, I64]:
    """(low, high) 64-bit words of each decimal's unscaled value; zero where null."""
    words = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint64)[2 * array.offset :][: 2 * len(array)]
    low, high = words[0::2].copy(), words[1::2].copy()
    nulls = null_mask(array)
    if nulls is not None:
        low[nulls] = 0
        high[nulls] = 0
    return low, high.view(np.int64)


def _variable_buffers(array: pa.Array) -> tuple[npt.NDArray[np.uint8], I64, I64]:
    """(bytes, starts, lengths) of a string or binary column, without copying the bytes; nulls get length 0."""
    _, offsets, data = array.buffers()
    if not len(array):
        empty = np.zeros(0, dtype=np.int64)
        return np.zeros(0, dtype=np.uint8), empty, empty
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    lengths = np.diff(ends)
    nulls = null_mask(array)
    if nulls is not None:
        lengths[nulls] = 0
    return np.frombuffer(data or b"", dtype=np.uint8), ends[:-1], lengths


# --- XXH64 ----------------------------------------------------------------------------------------------------------


def _rotate(values: U64, bits: int) -> U64:
    turned: U64 = values << np.uint64(bits)
    turned |= values >> np.uint64(64 - bits)
    return turned


def _finish(hashes: U64) -> U64:
    """In place: whoever calls has just made them."""
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _mix_int(hashes: U64, values: U64) -> U64:
    mixed = _rotate(hashes ^ ((values & np.uint64(0xFFFFFFFF)) * _P1), 23)
    mixed *= _P2
    mixed += _P3
    return mixed


def _mix_long(hashes: U64, values: U64) -> U64:
    mixed = _rotate(values * _P2, 31)
    mixed *= _P1
    mixed = _rotate(mixed ^ hashes, 27)
    mixed *= _P1
    mixed += _P4
    return mixed


def _hash_ints(values: U64, seeds: U64) -> U64:
    return _finish(_mix_int(seeds + _P5 + np.uint64(4), values))


def _hash_longs(values: U64, seeds: U64) -> U64:
    return _finish(_mix_long(seeds + _P5 + np.uint64(8), values))


def _hash_variable(data: npt.NDArray[np.uint8], starts: I64, lengths: I64, seeds: U64) -> U64:
    """Values of one length at a time, each length as one matrix of bytes."""
    seeds = np.broadcast_to(seeds, len(lengths))
    result = np.empty(len(lengths), dtype=np.uint64)
    order = np.argsort(lengths, kind="stable")
    widths, firsts = np.unique(lengths[order], return_index=True)
    bounds = np.append(firsts, len(order))
    for width, first, last in zip(widths.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        at_once = max(_MATRIX // max(width, 1), 1)  # finding a byte takes eight: long keys go a few at a time
        for start in range(first, last, at_once):
            rows = order[start : min(start + at_once, last)]
            matrix = (
                data[starts[rows][:, None] + np.arange(width)]
                if width
                else np.zeros((len(rows), 0), np.uint8)
            )
            result[rows] = _hash_matrix(matrix, seeds[rows])
    return result


def _hash_matrix(matrix: npt.NDArray[np.uint8], seeds: U64) -> U64:
    """XXH64 of each row of a byte matrix."""
    width = matrix.shape[1]
    longs = _words(matrix[:, : width // 8 * 8], np.uint64)
    stripes = width // 32 * 4
    hashes = _mix_stripes(longs[:, :stripes], seeds) if stripes else seeds + _P5
    hashes = hashes + np.uint64(width)
    for column in range(stripes, longs.shape[1]):
        hashes = _mix_long(hashes, longs[:, column])
    rest = width // 8 * 8
    if width - rest >= 4:
        hashes = _mix_int(hashes, _words(matrix[:, rest : rest + 4], np.uint32)[:, 0].astype(np.uint64))
        rest += 4
    for column in range(rest, width):
        hashes = _rotate(hashes ^ (matrix[:, column].astype(np.uint64) * _P5), 11) * _P1
    return _finish(hashes)


def _words(matrix: npt.NDArray[np.uint8], dtype: Any) -> Any:
    return np.ascontiguousarray(matrix).view(np.dtype(dtype).newbyteorder("<")).astype(dtype, copy=False)


def _mix_stripes(longs: U64, seeds: U64) -> U64:
    """The four-lane loop over 32-byte stripes."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
    for column in range(0, longs.shape[1], 4):
        for lane in range(4):
            lanes[lane] = _rotate(lanes[lane] + longs[:, column + lane] * _P2, 31) * _P1
    hashes = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for values in lanes:
        hashes = (hashes ^ (_rotate(values * _P2, 31) * _P1)) * _P1 + _P4
    return hashes
