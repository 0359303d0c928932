"""Where rows that a keyed Python operator makes are among the positions of its input.

A row that `process` gives has the position of the row it was made of. A timer belongs just before the first position of the
source at which the watermark has reached it, whichever key had a row there: so what is made by it is not behind the
watermark that woke it. Neither depends on how the input is cut into steps or keys are dealt out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.operators.shared.logic import longs
from holdfast.state.columns.hashing import I64
from holdfast.state.windows.watermarks import STAIRS

Where = tuple[int, int, int]
"""A position."""


@dataclass(frozen=True)
class Places:
    """Positions of the rows of a step, in their order; and where the watermark rises in it, in all partitions."""

    rows: list[Where]
    stairs: list[I64]
    """Source, ordinal and row of each."""
    marks: I64
    """The watermark at each of the stairs."""

    @staticmethod
    def of(rows: pa.Table, steps: pa.Table | None, delay_us: int) -> Places:
        """Stairs come from several tasks, in any order."""
        columns = [longs(rows, name).tolist() for name in POSITION_COLUMNS if name in rows.column_names]
        stairs = [longs(STAIRS.empty_table() if steps is None else steps, name) for name in STAIRS.names]
        order = np.lexsort(stairs[2::-1])
        marks = np.maximum.accumulate(stairs[3][order]) - delay_us
        return Places(list(zip(*columns, strict=True)), [column[order] for column in stairs[:3]], marks)

    def of_timer(self, at: int, after: int | None, was: int | None) -> Where:
        """Where a timer for `at` belongs. `after`: the last row of its key that was processed; `was`: the watermark before
        the step. One that was set for a time already reached belongs to the row that set it."""
        own = None if after is None else self.rows[after]
        found = int(np.searchsorted(self.marks, at))
        if own is not None and (found == len(self.marks) or (was is not None and at <= was)):
            return own
        # Without a row and a rise another delay than before has made it due: it belongs to the end of the step.
        before = self._before(min(found, len(self.marks) - 1))
        return before if own is None else max(before, own)

    def _before(self, stair: int) -> Where:
        source, ordinal, row = (int(column[stair]) for column in self.stairs)
        return source, ordinal, row - 1


def with_places(table: pa.Table, places: Sequence[Where]) -> pa.Table:
    """Rows with their positions."""
    columns = list(zip(*places, strict=True)) or [(), (), ()]
    for field, values in zip(POSITION_FIELDS, columns, strict=True):
        table = table.append_column(field, pa.array(values, field.type))
    return table
