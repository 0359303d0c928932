"""Rows of two streams brought together: equal keys, and one coordinate (time or number) within given bounds.

The rows of one side lie ascending by (hash of the key, coordinate); a probe finds those it meets by bisection, all
probes at once. Bounds are inclusive. A hash only brings rows near each other: keys are compared as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.grouping import Bools, rows_equal
from holdfast.state.columns.hashing import HASH_COLUMN, I64, canonical_key

AT = "__hf_at"
"""Column of kept rows: their coordinate, an event time in microseconds or a running number."""


@dataclass(frozen=True)
class SideRows:
    """Rows of one side: hash, coordinate, the columns that are kept; ascending by hash and coordinate."""

    table: pa.Table
    by: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def hashes(self) -> I64:
        return as_int64(single(self.table.column(HASH_COLUMN)))

    @cached_property
    def at(self) -> I64:
        return as_int64(single(self.table.column(AT)))

    @cached_property
    def keys(self) -> list[pa.Array]:
        return [canonical_key(self.table.column(name)) for name in self.by]

    @cached_property
    def collides(self) -> bool:
        """Whether two keys share a hash here, which hardly ever happens."""
        if not self.by:
            return False
        later = np.flatnonzero(self.hashes[1:] == self.hashes[:-1]) + 1
        return not rows_equal(self.keys, later, self.keys, later - 1).all()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which row of the probes meets which row of the other side; ascending by probe, then by coordinate."""

    probe: I64
    other: I64

    def where(self, chosen: Bools) -> Pairs:
        return self if chosen.all() else Pairs(self.probe[chosen], self.other[chosen])


def sorted_side(table: pa.Table, by: tuple[str, ...]) -> SideRows:
    """Rows with hash and coordinate, brought into order; equal ones stay in the order in which they came."""
    hashes, at = (as_int64(single(table.column(name))) for name in (HASH_COLUMN, AT))
    if len(at) and (at[1:] >= at[:-1]).all():
        order = np.argsort(hashes, kind="stable")  # which merges stretches that are sorted already
    else:
        order = np.lexsort((at, hashes))
    return SideRows(table.take(pa.array(order)), by)


def with_coordinate(side: SideRows, at: I64) -> SideRows:
    """The same rows with other coordinates, which ascend within each hash as well."""
    index = side.table.schema.get_field_index(AT)
    return SideRows(side.table.set_column(index, side.table.schema.field(index), pa.array(at)), side.by)


def matches(probes: SideRows, low: I64, high: I64, other: SideRows, low_values: I64 | None = None) -> Pairs:
    """All pairs with equal keys whose coordinate on the other side lies between `low` and `high` of the probe.

    `low_values`: another coordinate of the other side for `low`, which grows with the first within a key."""
    begin, end = _found(probes, low, high, other, low_values)
    pairs = _spread(begin, end)
    if not other.by or not len(pairs.probe):
        return pairs
    if other.collides:
        return pairs.where(rows_equal(probes.keys, pairs.probe, other.keys, pairs.other))
    return pairs.where(_same_key(probes, begin, end, other)[pairs.probe])


def count_matches(probes: SideRows, low: I64, high: I64, other: SideRows) -> I64:
    """How many rows of the other side each probe meets."""
    if other.collides:
        return np.bincount(matches(probes, low, high, other).probe, minlength=len(probes))
    begin, end = _found(probes, low, high, other)
    return np.where(_same_key(probes, begin, end, other), end - begin, 0)


def latest(probes: SideRows, low: I64, high: I64, other: SideRows) -> I64:
    """For each probe the last row of the other side among its matches; -1 if there is none."""
    if other.collides:
        pairs = matches(probes, low, high, other)
        found = np.full(len(probes), -1, dtype=np.int64)
        found[pairs.probe] = pairs.other  # ascending: the last one stays
        return found
    begin, end = _found(probes, low, high, other)
    there = (end > begin) & _same_key(probes, begin, end, other)
    return np.where(there, end - 1, -1)


def _same_key(probes: SideRows, begin: I64, end: I64, other: SideRows) -> Bools:
    """Whether what a probe found has its key, where no two keys of the other side share a hash."""
    same = np.zeros(len(probes), dtype=np.bool_)
    found = np.flatnonzero(end > begin)
    if not other.by:
        same[found] = True
    elif len(found):
        same[found] = rows_equal(probes.keys, found, other.keys, begin[found])
    return same


def _found(
    probes: SideRows, low: I64, high: I64, other: SideRows, low_values: I64 | None = None
) -> tuple[I64, I64]:
    """The stretch of the other side within the bounds, by hash and coordinate."""
    if not len(other) or not len(probes):
        nothing = np.zeros(len(probes), dtype=np.int64)
        return nothing, nothing
    first, stop = _runs(probes.hashes, other.hashes)
    begin = _bisected(other.at if low_values is None else low_values, low, first, stop, behind=False)
    end = _bisected(other.at, high, first, stop, behind=True)
    return begin, np.maximum(begin, end)


def _runs(sought: I64, hashes: I64) -> tuple[I64, I64]:
    """Where the rows of each hash begin and end. Both ascend: hashes sought twice are looked up once."""
    new = np.ones(len(sought), dtype=np.bool_)
    new[1:] = sought[1:] != sought[:-1]
    once, which = sought[new], np.cumsum(new) - 1
    return hashes.searchsorted(once, "left")[which], hashes.searchsorted(once, "right")[which]


def _bisected(values: I64, bounds: I64, first: I64, stop: I64, *, behind: bool) -> I64:
    """In each stretch, how far the values are below the bound; with `behind` those equal to it count as well."""
    low, high = first.copy(), stop.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        here, bound = values[middle], bounds[open_]
        right = here <= bound if behind else here < bound
        low[open_[right]] = middle[right] + 1
        high[open_[~right]] = middle[~right]
        open_ = open_[low[open_] < high[open_]]
    return low


def _spread(begin: I64, end: I64) -> Pairs:
    counts = end - begin
    probe = np.repeat(np.arange(len(counts)), counts)
    other = np.arange(len(probe)) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
    return Pairs(probe, other)


def joined(
    left: pa.Table, left_rows: I64, right: pa.Table, right_rows: I64, output: pa.Schema, names: Sequence[str]
) -> pa.Table:
    """Output rows of pairs: all columns of the left, then those `names` of the right; -1 on the right: nulls."""
    at_left = pa.array(left_rows)
    at_right = pa.array(right_rows, mask=right_rows < 0) if (right_rows < 0).any() else pa.array(right_rows)
    count = len(output) - len(names)
    columns = [left.column(name).take(at_left) for name in output.names[:count]]
    columns += [right.column(name).take(at_right) for name in names]
    return pa.Table.from_arrays(columns, names=output.names).cast(output)
