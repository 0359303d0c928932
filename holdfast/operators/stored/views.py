"""State rows as people want to see them: keys under their own names, aggregates finished, variables decoded.

A view has two steps. `prepare` turns rows that count into rows that can be compared by key: windows are put together from
panes, rows that mean nothing are left out. `finish` turns such rows into columns with readable names. Views are plain data
and travel to executors. Where nobody knows what stored columns mean, they are shown as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from holdfast.language.operators.rows import RANK
from holdfast.operators.stored.parts import RANGE_ROWS, UTC
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, finish, single
from holdfast.state.aggregates.function_names import POSITION
from holdfast.state.aggregates.ordered_values import exploded
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.joins.pairs import AT
from holdfast.state.keyed.expiry import SEEN, unexpired
from holdfast.state.variables.wakeups import WAKE
from holdfast.state.windows.time_windows import PANE, Windows, of_windows, results
from holdfast.state.windows.waiting_rows import TIME

BEST = "__hf_best"
"""What operators call the list of a key's best rows."""
_HIDDEN = frozenset({HASH_COLUMN, TIME, "__hf_source", *POSITION, "__hf_slot", "__hf_all", "__hf_from"})


class View(Protocol):
    """How the rows of one part are shown."""

    @property
    def rows_at_once(self) -> int:
        """How many rows to take at a time."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of what `finish` gives."""

    def prepare(self, rows: pa.Table) -> pa.Table: ...

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        """(rows to show, of which of the given rows each is; None: one for one, in order)."""


class SimpleView(ABC):
    """What most views do."""

    stored: pa.Schema
    """Columns as they are stored."""

    @property
    def rows_at_once(self) -> int:
        return RANGE_ROWS

    @cached_property
    def schema(self) -> pa.Schema:
        return self.finish(self.stored.empty_table())[0].schema

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    @abstractmethod
    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]: ...


def unique(names: Iterable[str]) -> list[str]:
    """The names, those that were there before with a line behind them."""
    made: list[str] = []
    for name in names:
        while name in made:
            name += "_"
        made.append(name)
    return made


# --- aggregates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished(SimpleView):
    """Key and results, as the operator emits them; with a lifetime `last_seen`, the key's time."""

    aggregation: Aggregation
    ends_us: tuple[int, int] | None = None

    @property
    def stored(self) -> pa.Schema:
        return self.aggregation.state_schema

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows if self.ends_us is None else rows.filter(pa.array(unexpired(*self.ends_us).rows(rows)))

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        return _unfolded(_renamed(finish(self.aggregation, rows)))


@dataclass(frozen=True)
class OpenWindows(SimpleView):
    """Windows that are not complete, with what they have come to so far."""

    windows: Windows
    watermark: int | None
    time_type: pa.DataType

    @property
    def rows_at_once(self) -> int:
        """A pane stands in several windows."""
        return max(1, RANGE_ROWS * self.windows.slide_us // self.windows.size_us)

    @property
    def stored(self) -> pa.Schema:
        return self.windows.aggregation.state_schema

    def prepare(self, rows: pa.Table) -> pa.Table:
        """One row per window and key; the window's number stands in the pane's column."""
        if not rows.num_rows:
            return rows
        highest = int(self.windows.last_of(as_int64(single(rows.column(PANE)))).max())
        lowest = None if self.watermark is None else self.windows.complete(self.watermark) + 1
        return of_windows(self.windows, [rows], lowest, highest)

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        return _unfolded(results(self.windows, rows, self.time_type))


def _renamed(table: pa.Table) -> pa.Table:
    """Without what is inner; a key's time as one."""
    shown = [name for name in table.column_names if name not in _HIDDEN]
    table = table.select(shown)
    if SEEN not in shown:
        return table
    seen = single(table.column(SEEN)).cast(pa.timestamp("us")).cast(UTC)
    return table.drop_columns([SEEN]).append_column(_free("last_seen", shown), seen)


def _free(name: str, taken: Iterable[str]) -> str:
    return unique([*taken, name])[-1]


def _unfolded(table: pa.Table) -> tuple[pa.Table, pa.Array | None]:
    """Lists of best rows as rows with ranks; anything else as it is."""
    if BEST not in table.column_names:
        return table, None
    index, ranks, rows = exploded(single(table.column(BEST)))
    at = pa.array(index)
    inside = [field.name for field in rows.type]
    beside = [name for name in table.column_names if name != BEST and name not in inside]
    columns = [table.column(name).take(at) for name in beside]
    columns += [rows.field(name) for name in inside]
    return pa.table([*columns, pa.array(ranks, pa.int32())], names=unique([*beside, *inside, RANK])), at


# --- rows that are kept as they came ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored(SimpleView):
    """Columns as they are stored, with readable names: `total_sum` for what `total` keeps as its sum."""

    stored: pa.Schema
    numbered: bool = False
    """Whether rows of joins have numbers instead of times."""

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        hidden = _HIDDEN if self.numbered else _HIDDEN | {AT}
        shown = [name for name in self.stored.names if name not in hidden]
        table = rows.select(shown)
        if WAKE in shown:
            at = shown.index(WAKE)
            table = table.set_column(at, WAKE, single(table.column(WAKE)).cast(pa.timestamp("us")).cast(UTC))
        return table.rename_columns(unique(map(_readable, shown))), None


def _readable(name: str) -> str:
    if name == AT:
        return "row_number"
    while name.startswith("__hf_"):
        name = name.removeprefix("__hf_")
    return name.removesuffix(".value").replace(".", "_") if name else "_"
