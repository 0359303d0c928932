"""Aggregates that the user writes: a function of all rows of a group, as Arrow arrays in the order of positions.

The rows of a group are kept whole, nulls among them, with their positions; merging puts lists of rows together (see
`collect` in ordered.py), and the function is called once when a result is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import StepFailed
from holdfast.state.aggregates.function_names import UserFunction
from holdfast.state.aggregates.ordered_values import joined_in_order, lifted_rows, row_parts
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Runs

Columns = list[pa.Array]


@dataclass(frozen=True, slots=True)
class Custom:
    """`kind`: a struct of the columns that the function is given. Its input has positions: ordered.py."""

    output: str
    function: UserFunction
    kind: pa.DataType

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return row_parts(self.kind)

    @property
    def result(self) -> pa.DataType:
        return self.function.result

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        return lifted_rows(column, rows)

    def fold(self, states: Columns, runs: Runs) -> Columns:
        return joined_in_order(states, runs, "udaf")

    def finish(self, states: Columns) -> pa.Array:
        sizes = arrays.lengths(states[0])
        rows = states[0].flatten()
        columns = [rows.field(place) for place in range(len(self.kind))]
        starts = (np.cumsum(sizes) - sizes).tolist()
        pairs = zip(starts, sizes.tolist(), strict=True)
        return self._typed([self._called(columns, start, size) for start, size in pairs])

    def _called(self, columns: Columns, start: int, size: int) -> Any:
        if not size:
            return None
        try:
            value = self.function.fn(*(column.slice(start, size) for column in columns))
        except Exception as error:
            raise StepFailed(
                f"the aggregate {self.output!r} failed over {size} rows: {type(error).__name__}: {error}"
            ) from error
        return value.as_py() if isinstance(value, pa.Scalar) else value

    def _typed(self, values: Sequence[Any]) -> pa.Array:
        try:
            return pa.array(values, self.result)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StepFailed(
                f"the aggregate {self.output!r} gave a value that is no {self.result}: {error}",
                cure="Return one value of the declared type, or None; or declare another type=.",
            ) from error


def row_of(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """The columns that a function is given, side by side in one."""
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields)
