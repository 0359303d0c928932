"""An attribute by which windows begin and end: its values as numbers, and how far they may lie apart.

Integers, decimals of up to 18 digits (as integers of their last digit) and timestamps (in microseconds) are compared as
64-bit integers, floats as doubles. Distances that leave the range count as its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.aggregation import single
from holdfast.state.aggregates.double_sums import F64
from holdfast.state.columns.arrays import floats, ints
from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import I64

Delta = int | float | Decimal | timedelta
Numbers = npt.NDArray[Any]

_LARGEST = 2**63 - 1
_DIGITS = 18


def in_units(delta: Delta, kind: pa.DataType) -> int | float | None:
    """The distance in the unit in which values of the type are compared; None if they do not fit together."""
    if pa.types.is_floating(kind):
        return None if isinstance(delta, timedelta) else float(delta)
    if pa.types.is_timestamp(kind):
        length = delta.total_seconds() if isinstance(delta, timedelta) else delta
        units = round(length * 1_000_000)
    elif isinstance(delta, timedelta):
        return None
    # Between whole numbers, more than 2.5 is more than 2.
    elif pa.types.is_decimal128(kind) and kind.precision <= _DIGITS:
        units = math.floor(Decimal(str(delta)).scaleb(kind.scale))
    elif pa.types.is_signed_integer(kind):
        units = math.floor(delta)
    else:
        return None
    return units if units <= _LARGEST else None


@dataclass(frozen=True)
class Attribute:
    """A column and a distance in its units."""

    column: str
    delta: int | float
    kind: pa.DataType

    @property
    def unit(self) -> pa.DataType:
        """The type of `values`."""
        return pa.float64() if pa.types.is_floating(self.kind) else pa.int64()

    def present(self, rows: pa.Table) -> pa.Table:
        """The rows that have a value: neither null nor NaN."""
        column = rows.column(self.column)
        if pa.types.is_floating(self.kind):
            missing = pc.is_null(column, nan_is_null=True)
            return rows.filter(pc.invert(missing)) if pc.any(missing).as_py() else rows
        return rows.filter(column.is_valid()) if column.null_count else rows

    def values(self, rows: pa.Table) -> Numbers:
        column = single(rows.column(self.column))
        if pa.types.is_floating(self.kind):
            return floats(column.cast(pa.float64()))
        if pa.types.is_timestamp(self.kind):
            return ints(column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()))
        if pa.types.is_decimal128(self.kind):
            return wide_sums.from_decimals(column)[0].view(np.int64)
        return ints(column)

    def above(self, values: Numbers) -> Numbers:
        """The largest values that are not too far above."""
        with np.errstate(over="ignore"):
            found: Numbers = values + self.delta
        return found if found.dtype == np.float64 else np.where(found < values, _LARGEST, found)

    def below(self, values: Numbers) -> Numbers:
        """The smallest values that are not too far below."""
        with np.errstate(over="ignore"):
            found: Numbers = values - self.delta
        return found if found.dtype == np.float64 else np.where(found > values, -_LARGEST - 1, found)


class Climb:
    """Of rows that lie key by key: the largest value so far in the key, and where it comes past a limit."""

    def __init__(self, values: I64 | F64, runs: Runs) -> None:
        self._different, codes = np.unique(values, return_inverse=True)
        # Each key has its own range of codes, so that one ascending array serves all keys.
        self._codes_of_a_key = len(self._different) + 1
        self._ids = runs.ids
        self._reached = np.maximum.accumulate(codes.reshape(-1) + self._ids * self._codes_of_a_key)

    @property
    def largest(self) -> Numbers:
        """The largest value so far, for each row."""
        return self._different[self._reached - self._ids * self._codes_of_a_key]

    def first_above(self, keys: I64, limits: Numbers) -> I64:
        """The key's first row above the limit; behind its last row if there is none."""
        return self._first(keys, self._different.searchsorted(limits, side="right"))

    def first_from(self, keys: I64, limits: Numbers) -> I64:
        """The key's first row at or above the limit; behind its last row if there is none."""
        return self._first(keys, self._different.searchsorted(limits, side="left"))

    def _first(self, keys: I64, codes: I64) -> I64:
        return np.asarray(self._reached.searchsorted(keys * self._codes_of_a_key + codes))
