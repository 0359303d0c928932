"""Aggregates over windows of a key's rows that end by what is in the rows, as one partition computes them. The
arithmetic is in `state/windows/run_windows.py` and `state/windows/delta_windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.operators.shared.keyed_maps import RowWindows, Stepped
from holdfast.operators.shared.logic import Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.run_windows import RunWindows


@dataclass(frozen=True)
class AttributedAggregate(RowWindows):
    """Windows one behind the other, or of rows that are near enough by their attribute."""

    windows: RunWindows | DeltaWindows
    by: tuple[str, ...]
    output: pa.Schema
    stamped: bool = False

    @property
    def keyed_map(self) -> Aggregation:
        return self.windows.map

    @property
    def used(self) -> Sequence[str]:
        return self.windows.used

    def present(self, rows: pa.Table) -> pa.Table:
        return self.windows.present(rows)

    def stepped(self, segments: Segments, rows: pa.Table) -> Stepped:
        return self.windows.step(segments, rows)

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        if isinstance(self.windows, DeltaWindows):
            return self.windows.evolved(table, segment.name)
        return super().evolved(segment, table)
