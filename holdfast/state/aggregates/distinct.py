"""Different values per key: how many there are, or which.

Kept is the sorted list of the values without repeats, so that the state depends only on which values came. Values are
the same as keys are: -0.0 is 0.0, every NaN is the one NaN, which stands last. Nulls are left out.

The answer is exact, and costs accordingly: a key takes as much space as all its different values, and a step that
touches the key reads and writes them all again. It suits some thousands of values per key, or windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.state.aggregates import wide_sums
from holdfast.state.aggregates.extremes import order_codes
from holdfast.state.columns import arrays
from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import canonical_key

Columns = list[pa.Array]


@dataclass(frozen=True, slots=True)
class Distinct:
    """`counted`: the result is their number, otherwise the values themselves, ascending."""

    kind: pa.DataType
    counted: bool

    @property
    def parts(self) -> list[tuple[str, pa.DataType]]:
        return [("values", arrays.list_of(self.kind))]

    @property
    def result(self) -> pa.DataType:
        return pa.int64() if self.counted else arrays.list_of(self.kind)

    def lift(self, column: pa.Array | None, rows: int) -> Columns:
        assert column is not None
        return [arrays.singletons(canonical_key(column), wide_sums.valid_flags(column))]

    def fold(self, states: Columns, runs: Runs) -> Columns:
        arrays.refuse_running(runs, "count_distinct" if self.counted else "collect_set")
        values, run = states[0].flatten(), arrays.run_of_elements(states[0], runs)
        order, firsts = arrays.unique_in_runs(run, order_codes(values))
        kept = order[firsts]
        return [arrays.packed_by_run(values.take(pa.array(kept)), run[kept], runs)]

    def finish(self, states: Columns) -> pa.Array:
        return pa.array(arrays.lengths(states[0])) if self.counted else states[0]
