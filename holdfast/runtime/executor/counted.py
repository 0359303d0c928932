"""Aggregates over count windows, as one partition computes them. The arithmetic is in `state/count_windows.py`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.runtime.executor.keyed_maps import RowWindows, Stepped
from holdfast.runtime.executor.logic import Segments
from holdfast.state.aggregates import Aggregation
from holdfast.state.count_windows import SLOT, CountWindows, step


@dataclass(frozen=True)
class CountedAggregate(RowWindows):
    """The last rows of a key after every so many of its rows."""

    windows: CountWindows
    by: tuple[str, ...]
    output: pa.Schema
    stamped: bool = False

    @property
    def keyed_map(self) -> Aggregation:
        return self.windows.aggregation

    @property
    def used(self) -> list[str]:
        return [name for name in self.windows.aggregation.schema.names if name != SLOT]

    def stepped(self, segments: Segments, rows: pa.Table) -> Stepped:
        return step(self.windows, segments, rows)
