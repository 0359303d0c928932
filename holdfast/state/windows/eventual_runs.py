"""Records of windows that end by an attribute or by marks: what is recorded of a key is its only state row, that of its last window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.grouping import Bools
from holdfast.state.windows.attributes import Attribute
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.eventual_rows import RowUnits
from holdfast.state.windows.run_windows import RunWindows


@dataclass(frozen=True)
class RunUnits(RowUnits):
    """The keys of windows one behind the other."""

    windows: RunWindows

    def empty(self, heads: pa.Table) -> Bools:
        if isinstance(self.windows.ends, Attribute):
            return np.zeros(heads.num_rows, dtype=np.bool_)
        return np.asarray(as_int64(single(heads.column(len(self.names) + 1))) == 1)

    def empty_state(self, count: int) -> dict[str, pa.Array]:
        """The next row begins a window: the last one has ended, or its first row lies lower than all others."""
        ends = self.windows.ends
        if not isinstance(ends, Attribute):
            note: int | float = 1
        else:
            note = -np.inf if pa.types.is_floating(ends.kind) else int(np.iinfo(np.int64).min)
        field = self.aggregation.state_schema.field(len(self.names) + 1)
        return {field.name: pa.array(np.full(count, note), field.type)}


@dataclass(frozen=True)
class DeltaUnits(RowUnits):
    """The keys of sliding windows by an attribute."""

    windows: DeltaWindows

    def empty(self, heads: pa.Table) -> Bools:
        return np.zeros(heads.num_rows, dtype=np.bool_)
