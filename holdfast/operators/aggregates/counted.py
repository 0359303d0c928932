"""Aggregates over count windows, as one partition computes them. The arithmetic is in `state/windows/count_windows.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.shared.keyed_maps import RowWindows, Stepped
from holdfast.operators.shared.logic import Place, Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.windows.count_windows import SLOT, CountWindows, step
from holdfast.state.windows.missed_rows import Missed, go_on, rows_had

TAKEN = "_rows"
"""Under this name the operator counts the rows it took, for itself: how fast they come tells how many a failure cost."""


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

    def counted(self, rows: int) -> Mapping[str, int]:
        return {TAKEN: rows}

    # --- after rows were missed ---

    def had(self, meta: Any, counts: Mapping[str, int]) -> tuple[int, ...]:
        return (counts.get(TAKEN, 0),)

    def without_stale(
        self, partitions: Sequence[Segments], meta: Any, missed: Sequence[int], places: Sequence[Place]
    ) -> tuple[tuple[Segments, ...], int]:
        # The keys' own numbers, not TAKEN: they contain what was missed earlier.
        of_all = Missed(sum(rows_had(self.windows, segments) for segments in partitions), missed[0])
        found = [
            go_on(self.windows, segments, of_all, place.directory, place.prefix)
            for segments, place in zip(partitions, places, strict=True)
        ]
        return tuple(after for after, _ in found), sum(gone for _, gone in found)
