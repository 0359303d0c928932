"""Aggregates over the rows of a key that tell of their windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.operators.aggregates.eventual import TellingLogic, due, positions_of
from holdfast.operators.aggregates.running import CountedAggregate, RowWindowAggregate
from holdfast.operators.shared.logic import Segments
from holdfast.state.eventual.scan import takes
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.eventual_counts import CountUnits
from holdfast.state.windows.eventual_rows import RowUnits
from holdfast.state.windows.eventual_runs import DeltaUnits, RunUnits
from holdfast.state.windows.row_windows import Stepped
from holdfast.state.windows.run_windows import RunWindows


class EventualRows(RowWindowAggregate, TellingLogic):
    """Over rows of a key."""

    @property
    def units(self) -> RowUnits:
        match self.windows:
            case CountWindows() as windows:
                return CountUnits(windows)
            case DeltaWindows() as windows:
                return DeltaUnits(windows)
            case RunWindows() as windows:
                return RunUnits(windows)
        raise AssertionError(self.windows)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (*super().outputs, *self.with_records)

    def further_outputs(
        self, rows: pa.Table, done: Stepped, after: Segments, meta: Any
    ) -> tuple[pa.Table, ...]:
        units, positions = self.units, positions_of(rows)
        marks = units.opened_or_closed(done.touched, *positions)
        told = pa.concat_tables([marks, units.reached(*positions)])
        asked = due(meta)
        if not len(asked):
            return told, units.aggregation.state_schema.empty_table()
        again, checks = units.checked(after, asked, marks)
        return pa.concat_tables([told, again]), checks

    def kept_rows(self, arrived: list[pa.Table], windows: pa.Table, meta: Any, end: Any) -> Any:
        rows = pa.concat_tables(arrived)
        chosen = takes(windows, self.units.units_of(rows), positions_of(rows), end.upto)
        return [rows.filter(pa.array(chosen))] if chosen.any() else None


@dataclass(frozen=True)
class EventualCounted(EventualRows, CountedAggregate):
    """Over the last rows of a key."""


@dataclass(frozen=True)
class EventualRuns(EventualRows):
    """Over rows of a key that an attribute or a mark parts from others."""
