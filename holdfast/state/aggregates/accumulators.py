"""The aggregate functions: what each keeps per key, and how rows and kept values flow together.

Every function is a pair of maps around one merge: `lift` turns each input row into a one-row state, `fold` merges the
states of each run, `finish` turns a state into the result. Merging rows, merging batches and running values are
the same `fold`, so results cannot differ between them.

| function | input | kept per key | result |
|---|---|---|---|
| count | any, or none | count int64 | int64 |
| sum | integer | sum decimal(38, 0) | int64 (a result outside its range is a StateError) |
| sum | decimal(p, s) | sum decimal(min(38, p + 10), s) | the same |
| sum | float, double | sum and low: double pair, see double_sums.py | double |
| avg | integer | sum decimal(38, 0), count | double |
| avg | decimal(p, s) | sum as above, count | decimal(p + 4, s + 4), half up, at most 38 digits |
| avg | float, double | sum, low, count | double |
| min, max | anything with an order | value | its type |
| variance, stddev | number | count, mean, m2: see variance.py | double |
| first, last | any, with positions | value, ordinal, row: see ordered_values.py | its type |
| collect | any, with positions | lists of the same | list of its type |
| count_distinct | anything with an order | sorted list of values: see ordered_values.py | int64 |
| collect_set | the same | the same | list of its type |
| quantile[q] | number | values and counts: see quantiles.py | double |
| udaf[…] | columns, with positions | lists of the rows: see ordered_values.py | as declared |
| top[…] | whole rows, with positions | lists of the best: see ordered_values.py | list of rows |

Nulls are left out, as in SQL, except by first and last, as in Spark; over no value counts are zero, lists are empty and
everything else is null.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates import double_sums, extremes, wide_sums
from holdfast.state.aggregates.accumulator import Accumulator, Columns, Parts
from holdfast.state.aggregates.function_names import FUNCTIONS, UserFunction, share_of
from holdfast.state.aggregates.ordered_values import AtEnd, Collected, Custom, Distinct, has_values, top_of
from holdfast.state.aggregates.quantiles import Quantile
from holdfast.state.aggregates.variance import Variance
from holdfast.state.columns.arrays import floats, ints, is_number, masked
from holdfast.state.columns.grouping import Runs

MOST_DIGITS = 38


def accumulator(output: str, function: str, kind: pa.DataType | None) -> Accumulator:
    """The accumulator for `function` over a column of type `kind` (None: no column). StateError if there is none."""
    if function == "count":
        return Count(kind is not None)
    found = None if kind is None else _over(output, function, kind)
    if found is not None:
        return found
    over = "no column" if kind is None else f"a column of type {kind}"
    raise StateError(
        f"{output!r} cannot be computed: {function} over {over} is not offered.",
        cure=f"Functions are {', '.join(FUNCTIONS)}; cast the column to a number first if it should be one.",
    )


def _over(output: str, function: str, kind: pa.DataType) -> Accumulator | None:
    if isinstance(function, UserFunction):
        return Custom(output, function, kind)
    if function in ("first", "last", "collect") and has_values(kind):
        return Collected(kind) if function == "collect" else AtEnd(kind, function == "last")
    if (top := top_of(function, kind)) is not None:
        return top
    if extremes.has_order(kind):
        if function in ("min", "max"):
            return Extreme(kind, function == "max")
        if function in ("count_distinct", "collect_set"):
            return Distinct(kind, function == "count_distinct")
    return _of_numbers(output, function, kind) if is_number(kind) else None


def _of_numbers(output: str, function: str, kind: pa.DataType) -> Accumulator | None:
    if function in ("variance", "stddev"):
        return Variance(function == "stddev")
    if function in ("sum", "avg"):
        total = _total(output, kind, wide=function == "avg")
        return total if function == "sum" else Mean(output, total, kind)
    share = share_of(function)
    return None if share is None else Quantile(share)


def _total(output: str, kind: pa.DataType, *, wide: bool) -> DecimalSum | FloatSum:
    if pa.types.is_signed_integer(kind):
        return (DecimalSum if wide else IntSum)(output, pa.decimal128(MOST_DIGITS, 0))
    if pa.types.is_decimal128(kind):
        return DecimalSum(output, pa.decimal128(min(MOST_DIGITS, kind.precision + 10), kind.scale))
    return FloatSum()


@dataclass(frozen=True, slots=True)
class Count(Accumulator):
    """Rows, or rows where the input is not null."""

    of_column: bool

    @property
    def parts(self) -> Parts:
        return [("count", pa.int64())]

    def lift(self, column: pa.Array, rows: int) -> Columns:
        if column is None:
            return [pa.array(np.ones(rows, dtype=np.int64))]
        return [pa.array(wide_sums.valid_flags(column).astype(np.int64))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return [pa.array(runs.sum(ints(states[0])))]


@dataclass(frozen=True, slots=True)
class DecimalSum(Accumulator):
    """Exact sum in a decimal type; integers may be lifted into it as well."""

    output: str
    kind: pa.DataType

    @property
    def parts(self) -> Parts:
        return [("sum", self.kind)]

    def lift(self, column: pa.Array, rows: int) -> Columns:
        if pa.types.is_decimal128(column.type):
            wide = wide_sums.from_decimals(column)
        else:
            wide = wide_sums.from_ints(ints(column.cast(pa.int64())))
        return [wide_sums.to_decimals(wide, self.kind, wide_sums.valid_flags(column))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        sums, fits = wide_sums.sum_runs(wide_sums.from_decimals(states[0]), runs)
        if not (fits & wide_sums.fits_digits(sums, self.kind.precision)).all():
            raise _too_large(self.output, str(self.kind), "Reduce the scale of the input.")
        return [wide_sums.to_decimals(sums, self.kind, runs.any(wide_sums.valid_flags(states[0])))]


@dataclass(frozen=True, slots=True)
class IntSum(DecimalSum):
    """Sum of integers, kept wider than its result: only a result that does not fit is an error, not a detour."""

    @property
    def result(self) -> pa.DataType:
        return pa.int64()

    def finish(self, states: Columns) -> pa.Array:
        sums = wide_sums.from_decimals(states[0])
        if not wide_sums.fits_int64(sums).all():
            raise _too_large(self.output, "64-bit integers", "Cast the input to decimal(38,0) first.")
        return masked(sums[0].view(np.int64), wide_sums.valid_flags(states[0]))


@dataclass(frozen=True, slots=True)
class FloatSum(Accumulator):
    """Sum of doubles as a pair; see double_sums.py."""

    @property
    def parts(self) -> Parts:
        return [("sum", pa.float64()), ("low", pa.float64())]

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return [column.cast(pa.float64()), pa.array(np.zeros(rows))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        high, low = double_sums.sum_pairs(floats(states[0]), floats(states[1]), runs)
        valid = runs.any(wide_sums.valid_flags(states[0]))
        return [masked(high, valid), pa.array(low)]


@dataclass(frozen=True, slots=True)
class Mean(Accumulator):
    """A sum and how many values went into it."""

    output: str
    total: DecimalSum | FloatSum
    kind: pa.DataType

    @property
    def parts(self) -> Parts:
        return [*self.total.parts, ("count", pa.int64())]

    @property
    def result(self) -> pa.DataType:
        if not pa.types.is_decimal128(self.kind):
            return pa.float64()
        return pa.decimal128(min(MOST_DIGITS, self.kind.precision + 4), min(MOST_DIGITS, self.kind.scale + 4))

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return [*self.total.lift(column, rows), *Count(True).lift(column, rows)]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return [*self.total.fold(states[:-1], runs), *Count(True).fold(states[-1:], runs)]

    def finish(self, states: Columns) -> pa.Array:
        count = ints(states[-1])
        if isinstance(self.total, FloatSum):
            return masked(floats(states[0]) / np.maximum(count, 1), count > 0)
        wide = wide_sums.from_decimals(states[0])
        if not pa.types.is_decimal128(self.kind):
            return masked(wide_sums.mean_as_double(wide, count), count > 0)
        means, fits = wide_sums.mean_as_decimal(wide, count, self.result.scale - self.kind.scale)
        if not (fits & wide_sums.fits_digits(means, self.result.precision)).all():
            raise _too_large(self.output, str(self.result), "Reduce the scale of the input.")
        return wide_sums.to_decimals(means, self.result, count > 0)


@dataclass(frozen=True, slots=True)
class Extreme(Accumulator):
    """Smallest or largest value."""

    kind: pa.DataType
    largest: bool

    @property
    def parts(self) -> Parts:
        return [("value", self.kind)]

    def lift(self, column: pa.Array, rows: int) -> Columns:
        return [column]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return [extremes.extreme(states[0], runs, largest=self.largest)]


def _too_large(output: str, room: str, cure: str) -> StateError:
    return StateError(f"{output!r} left the range of {room}.", cure=cure)
