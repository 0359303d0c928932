"""Sums of doubles that hardly depend on where batches were cut.

Inside a batch nothing is lost whatever the order of rows: values are cut into integer limbs relative to the run's
largest exponent, and the limbs are summed as int64. Their sum, and the state between batches, is an unevaluated
pair (high, low) with high = the rounded sum, some 106 bits together.

The limit: adding a batch to the pair rounds at about 2^-104 of the larger of the two. Two cuts of the same rows therefore
agree in `high` unless the true sum lies that close to the middle between two doubles, or cancels by more than
2^50 against an earlier value. Sums that leave the range of doubles become infinite, as in plain addition.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import I64

F64 = npt.NDArray[np.float64]
Pair = tuple[F64, F64]

_LIMB_BITS = 40
_ROOM_BITS = 62


def sum_runs(values: F64, runs: Runs) -> Pair:
    """The sum of each run (or after each row, if running) as a pair. Infinities and NaN follow IEEE addition."""
    finite = np.isfinite(values)
    if finite.all():
        return _sum_finite(values, runs)
    high, low = _sum_finite(np.where(finite, values, 0.0), runs)
    return _with_special(values, runs, high, low)


def sum_pairs(high: F64, low: F64, runs: Runs) -> Pair:
    """The sum of pairs: what `sum_runs` gives for highs, plus the same for lows."""
    if not runs.running and runs.longest <= 2:
        return _sum_couples(high, low, runs)
    result = sum_runs(high, runs)
    return add(result, sum_runs(low, runs)) if low.any() else result


def _sum_couples(high: F64, low: F64, runs: Runs) -> Pair:
    """Runs of one or two rows, as when a batch meets the state: one addition, no limbs."""
    coupled = np.flatnonzero(np.diff(runs.starts, append=runs.rows) == 2)
    first, second = runs.starts[coupled], runs.starts[coupled] + 1
    totals = high[runs.starts], low[runs.starts]
    sums = add((high[first], low[first]), (high[second], low[second]))
    totals[0][coupled], totals[1][coupled] = sums
    return totals


def add(left: Pair, right: Pair) -> Pair:
    """Sum of two pairs, normalised so that high is the rounded whole."""
    with np.errstate(invalid="ignore", over="ignore"):
        plain, error = _two_sum(left[0], right[0])
        tail, tail_error = _two_sum(left[1], right[1])
        high, error = _quick_two_sum(plain, error + tail)
        high, error = _quick_two_sum(high, error + tail_error)
    usual = np.isfinite(plain) & np.isfinite(high)
    return np.where(np.isfinite(plain), high, plain), np.where(usual, error, 0.0)


def _two_sum(a: F64, b: F64) -> Pair:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _quick_two_sum(a: F64, b: F64) -> Pair:
    total = a + b
    return total, b - (total - a)


def _sum_finite(values: F64, runs: Runs) -> Pair:
    if not runs.rows:
        return np.zeros(0), np.zeros(0)
    bits = min(_LIMB_BITS, _ROOM_BITS - int(runs.rows).bit_length())
    _, exponents = np.frexp(np.maximum.reduceat(np.abs(values), runs.starts))
    scale = exponents.astype(np.int64) - bits
    row_scale, result_scale = runs.spread(scale), runs.like_result(scale)
    total: Pair | None = None
    rest = values
    while total is None or rest.any():
        limbs = np.trunc(_ldexp(rest, -row_scale))  # rounded up, the largest doubles would leave their range
        rest = rest - _ldexp(limbs, row_scale)
        part = _scaled_pair(runs.sum(limbs.astype(np.int64)), result_scale)
        total = part if total is None else add(total, part)
        row_scale, result_scale = row_scale - bits, result_scale - bits
    return total


def _scaled_pair(sums: I64, scale: I64) -> Pair:
    high = sums.astype(np.float64)
    low = (sums - high.astype(np.int64)).astype(np.float64)
    with np.errstate(over="ignore"):
        high, low = _ldexp(high, scale), _ldexp(low, scale)
    return high, np.where(np.isfinite(high), low, 0.0)


def _ldexp(values: F64, exponents: I64) -> F64:
    """values · 2^exponents. By multiplication where the power is an ordinary double, which is several times faster."""
    if len(exponents) and exponents.min() > -900 and exponents.max() < 900:
        return values * ((exponents + 1023) << np.int64(52)).view(np.float64)
    return np.asarray(np.ldexp(values, exponents.astype(np.int32)))


def _with_special(values: F64, runs: Runs, high: F64, low: F64) -> Pair:
    up = runs.any(values == np.inf)
    down = runs.any(values == -np.inf)
    none = runs.any(np.isnan(values)) | (up & down)
    special = np.where(none, np.nan, np.where(up, np.inf, -np.inf))
    affected = up | down | none
    return np.where(affected, special, high), np.where(affected, 0.0, low)
