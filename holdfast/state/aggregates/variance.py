"""Sample variance and standard deviation, as Spark's var_samp and stddev: null for fewer than two values.

Kept per key: the count n, the mean, and m2 = Σ(x − mean)²; mean and m2 as pairs of doubles of some 106 bits together
(see double_sums.py). States are merged relative to a shift c, the mean of one of them: with d = mean − c,

    N = Σ n     S = Σ n·d     m2 = Σ (m2 + n·d²) − S² / N     mean = c + S / N

Every step is done in pairs and sums of a run lose nothing. Since c is the mean of some of the values, (c − mean)² is at
most N times the variance, so what cancels in m2 costs at most log2(N) of the 106 bits: whatever the order and the cuts,
the variance is within N · 2^-95 of the true one relative to it, plus the rounding of the result: for fewer than 2^40
values the last digit or two of a double. Values that are all the same give exactly zero.

Integers and decimals are taken as doubles, as in Spark. An infinity or NaN among two or more values gives NaN, and
so do values so far apart that their squares leave the range of doubles (some 1e150); below 1e-140 digits are lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.accumulator import Accumulator, Columns, Parts
from holdfast.state.aggregates.double_sums import F64, Pair, add, sum_pairs
from holdfast.state.columns.arrays import doubles, floats, ints, masked
from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import I64

_SPLIT = 2.0**27 + 1


@dataclass(frozen=True, slots=True)
class Variance(Accumulator):
    """`root`: the result is the standard deviation."""

    root: bool

    @property
    def parts(self) -> Parts:
        names = ("mean", "mean_low", "m2", "m2_low")
        return [("count", pa.int64()), *((name, pa.float64()) for name in names)]

    @property
    def result(self) -> pa.DataType:
        return pa.float64()

    def lift(self, column: pa.Array, rows: int) -> Columns:
        zeros = pa.array(np.zeros(rows))
        count = wide_sums.valid_flags(column).astype(np.int64)
        return [pa.array(count), pa.array(floats(doubles(column))), zeros, zeros, zeros]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        count = ints(states[0])
        mean, mean_low, m2, m2_low = (floats(part) for part in states[1:])
        folded = _merged(count, (mean, mean_low), (m2, m2_low), runs)
        return [pa.array(runs.sum(count)), *(pa.array(part) for pair in folded for part in pair)]

    def finish(self, states: Columns) -> pa.Array:
        count = ints(states[0])
        variance = floats(states[3]) / np.maximum(count - 1, 1)
        return masked(np.sqrt(variance) if self.root else variance, count > 1)


def _merged(count: I64, mean: Pair, m2: Pair, runs: Runs) -> tuple[Pair, Pair]:
    """(means, m2) of the runs, or after each of their rows."""
    shift = _shifts(count, mean[0], runs)
    with np.errstate(all="ignore"):
        there = count > 0
        distance = add(mean, (-shift[runs.ids], np.zeros(runs.rows)))
        distance = np.where(there, distance[0], 0.0), np.where(there, distance[1], 0.0)
        weight = count.astype(np.float64)
        shares = _times(distance, weight)
        first = sum_pairs(*shares, runs)
        second = sum_pairs(*add(m2, _product(shares, distance)), runs)
        total = np.maximum(runs.sum(count), 1).astype(np.float64)
        offset = _over(first, total)
        shifts = shift[runs.ids] if runs.running else shift
        means = add((shifts, np.zeros(len(shifts))), offset)
        cancelled = _product(first, offset)
        return _usual(means), _usual(_not_negative(add(second, (-cancelled[0], -cancelled[1]))))


def _shifts(count: I64, mean: F64, runs: Runs) -> F64:
    """For each run the mean of its first state that has values; zero if none has."""
    if not runs.rows:
        return np.zeros(0)
    rows = np.minimum.reduceat(np.where(count > 0, np.arange(runs.rows), runs.rows), runs.starts)
    return np.where(rows < runs.rows, mean[np.minimum(rows, runs.rows - 1)], 0.0)


def _usual(pair: Pair) -> Pair:
    """NaN for everything that is not finite, so that it stays and does not depend on what met first."""
    finite = np.isfinite(pair[0])
    return np.where(finite, pair[0], np.nan), np.where(finite, pair[1], 0.0)


def _not_negative(pair: Pair) -> Pair:
    below = pair[0] < 0
    return np.where(below, 0.0, pair[0]), np.where(below, 0.0, pair[1])


# --- products and quotients of pairs --------------------------------------------------------------------------------


def _exact_product(a: F64, b: F64) -> Pair:
    """a·b and what rounding left out (Dekker)."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, np.where(np.isfinite(error), error, 0.0)


def _halves(values: F64) -> Pair:
    scaled = values * _SPLIT
    high = scaled - (scaled - values)
    return high, values - high


def _product(a: Pair, b: Pair) -> Pair:
    high, low = _exact_product(a[0], b[0])
    return add((high, np.zeros(len(high))), (low + (a[0] * b[1] + a[1] * b[0]), np.zeros(len(high))))


def _times(a: Pair, factor: F64) -> Pair:
    return _product(a, (factor, np.zeros(len(factor))))


def _over(a: Pair, divisor: F64) -> Pair:
    """a / divisor: the quotient, and the quotient of the rest."""
    quotient = a[0] / divisor
    back = _exact_product(quotient, divisor)
    rest = add(a, (-back[0], -back[1]))
    return add((quotient, np.zeros(len(quotient))), (rest[0] / divisor, np.zeros(len(quotient))))
