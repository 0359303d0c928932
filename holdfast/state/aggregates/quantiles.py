"""Quantiles: exact while a key has few different values, within one percent when it has many.

The quantile for a share q of n values is the smallest value that at least q of them do not exceed: the value at rank
⌈q·n⌉ in ascending order, the smallest for q = 0. Nothing is interpolated. Nulls are left out; -0.0 is 0.0; NaN stands
above infinity, as in Spark's order.

Kept per key: its different values with how often each came. With more than `EXACT_VALUES` of them the key becomes
*coarse*: a value is replaced by the middle of its bucket. A bucket is all doubles that agree in sign, exponent and the
first six bits behind the point, so its middle is within 1/128 (less than 0.8 %) of each value in it; zero and
infinities stay what they are. (Below 2.3e-308 the error is up to 2e-310 instead.) A range from 1 to 1000 has 640 buckets.

Why so: values in full need space for every row, and a bound on it that holds for every input needs buckets that do not
depend on what came first. Whether a key is coarse, and its counts, depend only on which values came, not on order,
batches or partitions: the result is the same to the last bit. Only bits are compared and masked, so machines agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.accumulator import Accumulator, Columns, Parts
from holdfast.state.aggregates.double_sums import F64
from holdfast.state.aggregates.extremes import order_codes
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Bools, Runs
from holdfast.state.columns.hashing import I64, canonical_key

EXACT_VALUES = 256
RELATIVE_ERROR = 2.0**-7

_DROPPED_BITS = 46
_DROPPED = np.int64((1 << _DROPPED_BITS) - 1)
_MIDDLE = np.int64(1 << (_DROPPED_BITS - 1))


@dataclass(frozen=True, slots=True)
class Quantile(Accumulator):
    """The value below which `share` of all lie, as a double."""

    share: float

    @property
    def parts(self) -> Parts:
        lists = [("values", arrays.list_of(pa.float64())), ("counts", arrays.list_of(pa.int64()))]
        return [("coarse", pa.bool_()), *lists]

    @property
    def result(self) -> pa.DataType:
        return pa.float64()

    def lift(self, column: pa.Array, rows: int) -> Columns:
        valid = wide_sums.valid_flags(column)
        values = canonical_key(arrays.doubles(column))
        ones = pa.array(np.ones(rows, dtype=np.int64))
        coarse = pa.array(np.zeros(rows, dtype=np.bool_))
        return [coarse, arrays.singletons(values, valid), arrays.singletons(ones, valid)]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        arrays.refuse_running(runs, "quantile")
        run = arrays.run_of_elements(states[1], runs)
        values, counts = arrays.floats(states[1].flatten()), arrays.ints(states[2].flatten())
        coarse = runs.any(np.asarray(states[0].to_numpy(zero_copy_only=False), dtype=np.bool_))
        if coarse.any():
            values = _coarsened(values, coarse[run])
        run, values, counts = _added_up(run, values, counts)
        many = np.bincount(run, minlength=len(runs.starts)) > EXACT_VALUES
        if (many & ~coarse).any():
            coarse |= many
            run, values, counts = _added_up(run, _coarsened(values, coarse[run]), counts)
        lists = [arrays.packed_by_run(pa.array(part), run, runs) for part in (values, counts)]
        return [pa.array(coarse), *lists]

    def finish(self, states: Columns) -> pa.Array:
        sizes = arrays.lengths(states[1])
        values, counts = arrays.floats(states[1].flatten()), arrays.ints(states[2].flatten())
        sums = np.concatenate(([0], np.cumsum(counts)))
        ends = np.cumsum(sizes)
        before, after = sums[ends - sizes], sums[ends]
        # Values come one key behind the other: the value of rank k in a key is that of rank before + k in all.
        place = np.searchsorted(sums[1:], before + _ranks(self.share, after - before))
        found = sizes > 0
        result = np.zeros(len(sizes))
        result[found] = values[place[found]]
        return arrays.masked(result, found)


def _ranks(share: float, count: I64) -> I64:
    """⌈share · count⌉, at least 1; what a product is off by in the last digits (0.07 · 100) does not count."""
    products = share * count
    ranks = np.ceil(products - np.maximum(products, 1.0) * 2.0**-50)
    return np.asarray(np.clip(ranks.astype(np.int64), 1, np.maximum(count, 1)), dtype=np.int64)


def _added_up(run: I64, values: F64, counts: I64) -> tuple[I64, F64, I64]:
    """Different values of each run, ascending, with their counts."""
    if not len(run):
        return run, values, counts
    order, firsts = arrays.unique_in_runs(run, order_codes(pa.array(values, from_pandas=False)))
    kept = order[firsts]
    return run[kept], values[kept], np.add.reduceat(counts[order], firsts)


def _coarsened(values: F64, where: Bools) -> F64:
    """Where asked for, the middle of each value's bucket, which lies in the same bucket."""
    middles = ((values.view(np.int64) & ~_DROPPED) | _MIDDLE).view(np.float64)
    return np.where(where & np.isfinite(values) & (values != 0), middles, values)
