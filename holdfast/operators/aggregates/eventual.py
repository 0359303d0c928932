"""Windowed aggregates that tell of their windows: beside the results they give records of what was opened, closed and checked.

Two more outputs, for the driver alone: records without state, and state rows of the windows that are due for a check. Which are due
comes with `meta`. The kinds are in `eventual_rows.py` and `eventual_times.py`. The replay after a restore is a logic of its own: it takes the rows that windows have to take again, and gives
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.logic import (
    Applied,
    KeyedLogic,
    Place,
    PortRows,
    Segments,
    Share,
    longs,
)
from holdfast.operators.shared.timed import Arrived
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.eventual.records import Position
from holdfast.state.eventual.scan import AFTER, Units, last_of
from holdfast.state.keyed.segment import open_segment

RESULTS, MARKS, CHECKS = 0, 1, 2
"""Output ports."""
DUE, END = "due", "end"
"""In `meta`: hashes of windows to be checked; in a replay, where it ends."""
BEYOND, REPLAYED = "_beyond", "_replayed"
"""In the counts of a replay: more than none if rows came behind the last one to be taken; how many rows came."""


@dataclass(frozen=True, slots=True)
class End:
    """Where a replay ends: the last row to be taken, and the `meta` of the operator behind it."""

    upto: Position
    meta: Any

    def encode(self) -> list[Any]:
        return [*self.upto, self.meta]

    @staticmethod
    def decode(data: Sequence[Any]) -> End:
        return End((data[0], data[1]), data[2])


class TellingLogic(KeyedLogic):
    """A windowed aggregate with records."""

    @property
    def units(self) -> Units:
        """Which windows there are."""
        raise NotImplementedError

    def key_hashes_of(self, table: pa.Table) -> I64:
        """The hashes of keys alone, which decide who owns a window, of state rows or records."""
        return longs(table, HASH_COLUMN)

    @property
    def with_records(self) -> tuple[pa.Schema, pa.Schema]:
        """The two outputs."""
        return self.units.marks, self.units.aggregation.state_schema

    def groups(self, marks: pa.Table) -> I64 | None:
        """What closes together, for windows that need no record to be closed."""
        return None

    def lowest(self, meta: Any) -> int:
        """The first group that is not closed."""
        return 0

    def kept_rows(self, arrived: Any, windows: pa.Table, meta: Any, end: End) -> Any:
        """Of what arrived in a replay the rows that windows have to take again; None: there are none."""
        raise NotImplementedError

    def now(self, meta: Any, wall_us: int) -> int:
        """The time of the input where this is its `meta`."""
        return wall_us

    def to_store(self, meta: Any) -> Any:
        """The `meta` without what was asked of a step."""
        return None if meta is None else {name: value for name, value in meta.items() if name != DUE} or None


@dataclass(frozen=True)
class Replay(KeyedLogic):
    """Takes again what windows lack. Its first segment says which window takes which rows; `meta` is that of the operator, with
    its end."""

    telling: TellingLogic

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return self.telling.columns

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return self.telling.outputs

    def own(self, rows: PortRows, partition: int, partitions: int) -> Any:
        return self.telling.own(rows, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return self.telling.shares(port, rows, partitions)

    def gather(self, shares: Sequence[Share]) -> Any:
        return self.telling.gather(shares)

    def apply(self, segments: Segments, meta: Any, arrived: Any, place: Place) -> Applied:
        end = End.decode(meta[END])
        own = {name: value for name, value in meta.items() if name != END} or None
        telling, state = segments[:1], segments[1:]
        nothing = tuple(schema.empty_table() for schema in self.outputs)
        tables = [arrived.rows] if isinstance(arrived, Arrived) else arrived
        beyond = any(_last(table) > end.upto for table in tables)
        counts = {BEYOND: int(beyond), REPLAYED: sum(table.num_rows for table in tables)}
        kept = self.telling.kept_rows(arrived, open_segment(telling[0].path), own, end)
        if kept is None:
            return Applied(segments, nothing, meta, counts)
        applied = self.telling.apply(state, own, kept, place)
        after = {**(applied.meta or {}), END: meta[END]}
        return Applied((*telling, *applied.segments), nothing, after, counts)

    def at(self, meta: Any, now_us: int) -> Any:
        return meta

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        raise NotImplementedError("a replay begins with as many partitions as it ends with")


def windows_schema(units: Units) -> pa.Schema:
    """Of the segment that says which window takes which rows: behind which position."""
    fields = [units.marks.field(name) for name in (*units.names, *AFTER)]
    return pa.schema(fields)


def due(meta: Mapping[str, Any] | None) -> I64:
    return np.array((meta or {}).get(DUE, ()), dtype=np.int64)


def positions_of(rows: pa.Table) -> tuple[I64, I64]:
    ordinals, numbers = (longs(rows, name) for name in POSITION_COLUMNS[1:])
    return ordinals, numbers


def _last(rows: pa.Table) -> Position:
    return last_of(*positions_of(rows))


def first_of(rows: pa.Table) -> Position:
    """The position of the first of some rows; there may be none."""
    ordinals, numbers = positions_of(rows)
    if not len(ordinals):
        return (0, 0)
    lowest = ordinals.min()
    return int(lowest), int(numbers[ordinals == lowest].min())
