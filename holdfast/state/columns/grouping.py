"""Rows that belong to one key, found without a loop: order by hash, then compare the keys of neighbours.

A hash only brings rows near each other. Where two keys share a hash, the rows are ordered again by hash and key, so
that every key is one run. The order is stable: rows of one key stay in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.columns.hashing import I64

Bools = npt.NDArray[np.bool_]

_FEW_STRETCHES = 3
_FALLS_MAX = 0.375
"""Of rows in no order every other one has a smaller hash than the one before; where half of them ascend, one in four."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """`order` lists the rows key by key; `starts` tells where in it each key begins. Keys ascend by hash."""

    order: I64
    starts: I64

    @property
    def first_rows(self) -> I64:
        """The first row of each key, as an index into the original rows."""
        return self.order[self.starts]

    @property
    def runs(self) -> Runs:
        """The rows of each key in that order."""
        return Runs(self.starts, len(self.order))


@dataclass(frozen=True, slots=True)
class Runs:
    """Consecutive runs of rows, and how to sum over them: one value per run, or one per row (`running`)."""

    starts: I64
    rows: int
    running: bool = False

    @property
    def ids(self) -> I64:
        """The run of each row."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=self.rows))

    @property
    def ends(self) -> I64:
        """Behind the last row of each run."""
        return np.append(self.starts, self.rows)[1:]

    @property
    def longest(self) -> int:
        return int(np.diff(self.starts, append=self.rows).max(initial=0))

    def spread(self, per_run: I64) -> I64:
        """A value of each run, repeated for each of its rows."""
        return np.repeat(per_run, np.diff(self.starts, append=self.rows))

    def like_result(self, per_run: I64) -> I64:
        """A value of each run in the shape of results: per row if running."""
        return self.spread(per_run) if self.running else per_run

    def sum(self, values: I64) -> I64:
        """Sums of int64, exact as long as each result fits: what overflows outside the run cancels again."""
        if not self.rows:
            return np.zeros(0, dtype=np.int64)
        if not self.running:
            return np.asarray(np.add.reduceat(values, self.starts))
        sums = np.cumsum(values)
        before = sums[self.starts] - values[self.starts]
        return sums - self.spread(before)

    def any(self, flags: Bools) -> Bools:
        if flags.all():
            return np.ones(self.rows if self.running else len(self.starts), dtype=np.bool_)
        return self.sum(flags.astype(np.int64)) > 0

    def largest(self, codes: I64) -> I64:
        """Maximum of codes in [0, rows]: a bound that lets one accumulate serve all runs."""
        if not self.rows:
            return np.zeros(0, dtype=np.int64)
        if not self.running:
            return np.asarray(np.maximum.reduceat(codes, self.starts))
        floor = self.ids * np.int64(self.rows + 1)
        reached: I64 = np.maximum.accumulate(codes + floor)
        return reached - floor


def group_rows(hashes: I64, keys: Sequence[pa.Array]) -> Grouping:
    """Bring the rows of each key together. `keys`: canonical key columns, one chunk each."""
    order, repeated = _stable_order(hashes)
    if not len(order):
        return Grouping(order, order)
    if not rows_equal(keys, order[repeated], keys, order[repeated - 1]).all():
        return _group_with_collisions(hashes, keys)
    new = np.ones(len(order), dtype=np.bool_)
    new[repeated] = False
    return Grouping(order, np.flatnonzero(new))


def _group_with_collisions(hashes: I64, keys: Sequence[pa.Array]) -> Grouping:
    codes = [_key_codes(key) for key in keys]
    order = np.lexsort((*codes, hashes)).astype(np.int64)
    new = np.zeros(len(order), dtype=np.bool_)
    new[0] = True
    for values in (hashes, *codes):
        ordered = values[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return Grouping(order, np.flatnonzero(new))


def _key_codes(key: pa.Array) -> I64:
    encoded = comparable(key).dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _stable_order(hashes: I64) -> tuple[I64, I64]:
    """(a stable argsort, the places in it that have the hash of the place before). Rows that are a few sorted stretches,
    or mostly one, are merged; others are sorted as numbers that have the hash's top bits above and the row below, which
    is several times faster than an argsort."""
    rows = len(hashes)
    if rows < 2:
        return np.arange(rows), np.zeros(0, dtype=np.int64)
    found = None if _is_almost_sorted(hashes) else _order_by_top_bits(hashes)
    if found is not None:
        return found
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    return order, np.flatnonzero(ordered[1:] == ordered[:-1]) + 1


def _is_almost_sorted(hashes: I64) -> bool:
    """Whether merging pays: the rows are a few sorted stretches, or one of them is half of all."""
    falls = hashes[1:] < hashes[:-1]
    count = np.count_nonzero(falls)
    if count <= _FEW_STRETCHES:
        return True
    if count > _FALLS_MAX * len(hashes):
        return False
    longest = int(np.diff(np.flatnonzero(falls), prepend=-1, append=len(hashes) - 1).max())
    return 2 * longest >= len(hashes)


def _order_by_top_bits(hashes: I64) -> tuple[I64, I64] | None:
    """The same by the top bits of hashes. None if some differ only in the bits that had to go: very rare."""
    bits = (len(hashes) - 1).bit_length()
    lowest = hashes.min()
    span = int(hashes.max()) - int(lowest)
    numbers = hashes.view(np.uint64) - lowest.view(
        np.uint64
    )  # wraps around where a signed distance would overflow
    numbers >>= np.uint64(max(span.bit_length() + bits - 64, 0))
    numbers <<= np.uint64(bits)
    numbers |= np.arange(len(hashes), dtype=np.uint64)
    numbers.sort()
    order = np.asarray(numbers & np.uint64((1 << bits) - 1)).view(np.int64)
    numbers >>= np.uint64(bits)
    repeated = np.flatnonzero(numbers[1:] == numbers[:-1]) + 1
    alike = hashes[order[repeated]] == hashes[order[repeated - 1]]
    return (order, repeated) if alike.all() else None


def rows_equal(left: Sequence[pa.Array], left_rows: I64, right: Sequence[pa.Array], right_rows: I64) -> Bools:
    """Whether the keys in the paired rows are the same; null equals null, NaN equals NaN."""
    if not len(left_rows):
        return np.ones(0, dtype=np.bool_)
    if all(_is_plain(key) for key in (*left, *right)):
        same = [
            _longs(mine)[left_rows] == _longs(other)[right_rows]
            for mine, other in zip(left, right, strict=True)
        ]
        return np.asarray(same[0] if len(same) == 1 else np.logical_and.reduce(same))
    at_left, at_right = pa.array(left_rows), pa.array(right_rows)
    return keys_equal([key.take(at_left) for key in left], [key.take(at_right) for key in right])


def keys_equal(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Bools:
    """Row by row, whether the keys are the same; null equals null, NaN equals NaN. At least one column."""
    same = [_equal(comparable(mine), comparable(other)) for mine, other in zip(left, right, strict=True)]
    return same[0] if len(same) == 1 else np.logical_and.reduce(same)


def _equal(left: pa.Array, right: pa.Array) -> Bools:
    if _is_plain(left) and _is_plain(right):
        return np.asarray(_longs(left) == _longs(right))
    equal = pc.equal(left, right)
    if left.null_count or right.null_count:
        equal = pc.or_(equal.fill_null(False), pc.and_(left.is_null(), right.is_null()))
    return np.asarray(equal.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _is_plain(key: pa.Array) -> bool:
    """Whether NumPy can compare the values as they lie in memory."""
    return not key.null_count and pa.types.is_int64(key.type)


def _longs(key: pa.Array) -> I64:
    return np.asarray(key.to_numpy())


def comparable(key: pa.Array) -> pa.Array:
    """Canonical floats as their bits, where NaN equals itself; everything else as it is."""
    if pa.types.is_float64(key.type):
        return key.view(pa.int64())
    return key.view(pa.int32()) if pa.types.is_float32(key.type) else key
