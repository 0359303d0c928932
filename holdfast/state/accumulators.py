"""The aggregate functions: what each keeps per key, and how rows and kept values flow together.

Every function is a pair of maps around one merge: `lift` turns each input row into a one-row state, `fold` merges the
states of each run, `finish` turns a state into the result. Merging rows, merging batches and running values are
the same `fold`, so results cannot differ between them.

| function | input | kept per key | result |
|---|---|---|---|
| count | any, or none | count int64 | int64 |
| sum | integer | sum decimal(38, 0) | int64 (a result outside its range is a StateError) |
| sum | decimal(p, s) | sum decimal(min(38, p + 10), s) | the same |
| sum | float, double | sum and low: double pair, see floatsum.py | double |
| avg | integer | sum decimal(38, 0), count | double |
| avg | decimal(p, s) | sum as above, count | decimal(p + 4, s + 4), half up, at most 38 digits |
| avg | float, double | sum, low, count | double |
| min, max | anything with an order | value | its type |

Nulls are left out, as in SQL; a sum, avg, min or max over no value is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import StateError
from holdfast.state import extremes, floatsum, widesum
from holdfast.state.grouping import Bools, Runs
from holdfast.state.hashing import I64

Columns = list[pa.Array]

FUNCTIONS = ("count", "sum", "min", "max", "avg")
MOST_DIGITS = 38


class Accumulator(Protocol):
    """One aggregate function over one input type. `parts` names what it keeps, in order."""

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]: ...

    @property
    def result(self) -> pa.DataType: ...

    def lift(self, column: pa.Array | None, rows: int) -> Columns: ...

    def fold(self, states: Columns, runs: Runs) -> Columns: ...

    def finish(self, states: Columns) -> pa.Array: ...


def accumulator(output: str, function: str, kind: pa.DataType | None) -> Accumulator:
    """The accumulator for `function` over a column of type `kind` (None: no column). StateError if there is none."""
    if function == "count":
        return Count(kind is not None)
    if kind is not None and function in ("min", "max") and extremes.has_order(kind):
        return Extreme(kind, function == "max")
    if kind is not None and function in ("sum", "avg"):
        total = _total(output, kind, wide=function == "avg")
        if total is not None:
            return total if function == "sum" else Mean(output, total, kind)
    over = "no column" if kind is None else f"a column of type {kind}"
    raise StateError(
        f"{output!r} cannot be computed: {function} over {over} is not offered.",
        cure=f"Functions are {', '.join(FUNCTIONS)}; cast the column to a number first if it should be one.",
    )


def _total(output: str, kind: pa.DataType, *, wide: bool) -> IntSum | DecimalSum | FloatSum | None:
    if pa.types.is_signed_integer(kind):
        total = DecimalSum(output, pa.decimal128(MOST_DIGITS, 0))
        return total if wide else IntSum(output, total)
    if pa.types.is_decimal128(kind):
        return DecimalSum(output, pa.decimal128(min(MOST_DIGITS, kind.precision + 10), kind.scale))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return FloatSum()
    return None


@dataclass(frozen=True, slots=True)
class Count:
    """Rows, or rows where the input is not null."""

    of_column: bool

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [("count", pa.int64())]

    @property
    def result(self) -> pa.DataType:
        return pa.int64()

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        if column is None:
            return [pa.array(np.ones(rows, dtype=np.int64))]
        return [pa.array(widesum.valid_flags(column).astype(np.int64))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return [pa.array(runs.sum(_ints(states[0])))]

    def finish(self, states: Columns) -> pa.Array:
        return states[0]


@dataclass(frozen=True, slots=True)
class DecimalSum:
    """Exact sum in a decimal type; integers may be lifted into it as well."""

    output: str
    kind: pa.DataType

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [("sum", self.kind)]

    @property
    def result(self) -> pa.DataType:
        return self.kind

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        assert column is not None
        if pa.types.is_decimal128(column.type):
            wide = widesum.from_decimals(column)
        else:
            wide = widesum.from_ints(_ints(column.cast(pa.int64())))
        return [widesum.to_decimals(wide, self.kind, widesum.valid_flags(column))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        sums, fits = widesum.sum_runs(widesum.from_decimals(states[0]), runs)
        if not (fits & widesum.fits_digits(sums, self.kind.precision)).all():
            raise _too_large(self.output, str(self.kind), "Reduce the scale of the input.")
        return [widesum.to_decimals(sums, self.kind, runs.any(widesum.valid_flags(states[0])))]

    def finish(self, states: Columns) -> pa.Array:
        return states[0]


@dataclass(frozen=True, slots=True)
class IntSum:
    """Sum of integers, kept wider than its result: only a result that does not fit is an error, not a detour."""

    output: str
    wide: DecimalSum

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return self.wide.parts

    @property
    def result(self) -> pa.DataType:
        return pa.int64()

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        return self.wide.lift(column, rows)

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return self.wide.fold(states, runs)

    def finish(self, states: Columns) -> pa.Array:
        sums = widesum.from_decimals(states[0])
        if not widesum.fits_int64(sums).all():
            raise _too_large(self.output, "64-bit integers", "Cast the input to decimal(38,0) first.")
        return _masked(sums[0].view(np.int64), widesum.valid_flags(states[0]))


@dataclass(frozen=True, slots=True)
class FloatSum:
    """Sum of doubles as a pair; see floatsum.py."""

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [("sum", pa.float64()), ("low", pa.float64())]

    @property
    def result(self) -> pa.DataType:
        return pa.float64()

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        assert column is not None
        return [column.cast(pa.float64()), pa.array(np.zeros(rows))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        high, low = floatsum.sum_pairs(_floats(states[0]), _floats(states[1]), runs)
        valid = runs.any(widesum.valid_flags(states[0]))
        return [_masked(high, valid), pa.array(low)]

    def finish(self, states: Columns) -> pa.Array:
        return states[0]


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum and how many values went into it."""

    output: str
    total: IntSum | DecimalSum | FloatSum
    kind: pa.DataType

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [*self.total.parts, ("count", pa.int64())]

    @property
    def result(self) -> pa.DataType:
        if not pa.types.is_decimal128(self.kind):
            return pa.float64()
        return pa.decimal128(min(MOST_DIGITS, self.kind.precision + 4), min(MOST_DIGITS, self.kind.scale + 4))

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        return [*self.total.lift(column, rows), *Count(True).lift(column, rows)]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return [*self.total.fold(states[:-1], runs), *Count(True).fold(states[-1:], runs)]

    def finish(self, states: Columns) -> pa.Array:
        count = _ints(states[-1])
        if isinstance(self.total, FloatSum):
            return _masked(_floats(states[0]) / np.maximum(count, 1), count > 0)
        wide = widesum.from_decimals(states[0])
        if not pa.types.is_decimal128(self.kind):
            return _masked(widesum.mean_as_double(wide, count), count > 0)
        means, fits = widesum.mean_as_decimal(wide, count, self.result.scale - self.kind.scale)
        if not (fits & widesum.fits_digits(means, self.result.precision)).all():
            raise _too_large(self.output, str(self.result), "Reduce the scale of the input.")
        return widesum.to_decimals(means, self.result, count > 0)


@dataclass(frozen=True, slots=True)
class Extreme:
    """Smallest or largest value."""

    kind: pa.DataType
    largest: bool

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [("value", self.kind)]

    @property
    def result(self) -> pa.DataType:
        return self.kind

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        assert column is not None
        return [column]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return [extremes.extreme(states[0], runs, largest=self.largest)]

    def finish(self, states: Columns) -> pa.Array:
        return states[0]


def _too_large(output: str, room: str, cure: str) -> StateError:
    return StateError(f"{output!r} left the range of {room}.", cure=cure)


def _ints(array: pa.Array) -> I64:
    return np.asarray(_filled(array, 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _floats(array: pa.Array) -> floatsum.F64:
    return np.asarray(_filled(array, 0.0).to_numpy(zero_copy_only=False), dtype=np.float64)


def _filled(array: pa.Array, value: float) -> pa.Array:
    return pc.fill_null(array, pa.scalar(value, array.type)) if array.null_count else array


def _masked(values: I64 | floatsum.F64, valid: Bools) -> pa.Array:
    return pa.array(values, mask=None if valid.all() else ~valid, from_pandas=False)
