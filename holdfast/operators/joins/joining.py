"""What the joins have in common: two input ports with event time, and output rows made of pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.logic import (
    Applied,
    KeyedLogic,
    Place,
    PortRows,
    Segments,
    Share,
    times_at,
)
from holdfast.operators.shared.timed import PASSED, SILENT, Arrived, TimedPort, later, left_out
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import I64
from holdfast.state.joins.pairs import SideRows, joined
from holdfast.state.joins.sides import Needed, Pile
from holdfast.state.keyed.row_evolution import evolved
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.watermarks import NEVER

Arrivals = tuple[Arrived | None, Arrived | None]
Sides = tuple[pa.Table | None, pa.Table | None]
"""Rows of left and right; None: none came."""
Reached = tuple[dict[int, int], dict[int, int]]
Marks = tuple[int | None, int | None]
"""The watermarks of left and right; None: there is none yet."""

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class PairShape:
    """What output rows look like: all columns of the left, then those `names` of the right.

    `where` chooses among them: a function of a table that gives booleans, or an expression of Arrow."""

    output: pa.Schema
    names: tuple[str, ...]
    where: Any = None

    def rows(
        self, left: pa.Table, left_rows: I64, right: pa.Table, right_rows: I64
    ) -> tuple[pa.Table, Bools]:
        """(the output rows that count, which of the pairs they are)."""
        table = joined(left, left_rows, right, right_rows, self.output, self.names)
        if self.where is None or not table.num_rows:
            return table, np.ones(table.num_rows, dtype=np.bool_)
        if isinstance(self.where, pc.Expression):
            numbered = table.append_column("__hf_pair", pa.array(np.arange(table.num_rows)))
            kept = numbered.filter(self.where).column("__hf_pair").to_numpy()
            mask = np.zeros(table.num_rows, dtype=np.bool_)
            mask[kept] = True
        else:
            found = self.where(table)
            chosen = pa.array(found) if not isinstance(found, pa.Array | pa.ChunkedArray) else found
            mask = np.asarray(chosen.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
        return table.filter(pa.array(mask)), mask

    def alone(self, left: pa.Table, left_rows: I64, right: pa.Schema) -> pa.Table:
        """Output rows of left rows that met nobody."""
        nobody = np.full(len(left_rows), -1, dtype=np.int64)
        return joined(left, left_rows, right.empty_table(), nobody, self.output, self.names)


class JoinLogic(KeyedLogic):
    """Rows of two ports come out in pairs."""

    schemas: tuple[pa.Schema, pa.Schema]
    shape: PairShape

    @property
    @abstractmethod
    def piles(self) -> tuple[Pile, ...]:
        """What is kept."""

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return tuple((*schema.names, *POSITION_COLUMNS) for schema in self.schemas)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (self.shape.output,)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        dealt = [pile.repartitioned(old, partition, partitions, place) for pile in self.piles]
        return tuple(segment for of_pile in dealt for segment in of_pile)

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        """Kept rows of a stream whose columns have changed: new ones are null."""
        (pile,) = [pile for pile in self.piles if pile.among([segment])]
        return table if table.schema.equals(pile.schema) else evolved(table, pile.schema, {}, segment.name)


@dataclass(frozen=True)
class TimedJoin(JoinLogic):
    """A join of two ports with event time. A row that is late in its own source, or has no event time, meets nobody and is
    counted; one of the left comes out alone if such rows do.

    The watermark of a port all of whose sources are idle is the other one's.

    `meta`: {"reached": for each port [[source, largest event time]], "marks": the watermark of each}, sources by name;
    if sources may be idle also what `TimedPort.noted` gives, for each port; if `counts_rows`, "rows": how many rows with an
    event time each port had so far."""

    ports: tuple[TimedPort, TimedPort]
    schemas: tuple[pa.Schema, pa.Schema]
    shape: PairShape
    outer: bool
    """Left rows that meet nobody come out as well, with nulls on the right."""

    @property
    def piles(self) -> tuple[Pile, ...]:
        of_sides = enumerate(zip(self.ports, self.schemas, strict=True))
        return tuple(Pile(side, port.by, schema) for side, (port, schema) in of_sides)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrivals:
        left, right = (port.own(rows, side, partition, partitions) for side, port in enumerate(self.ports))
        return left, right

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return self.ports[port if port >= 0 else times_at(port)].shares(port, rows, partitions)

    def gather(self, shares: Sequence[Share]) -> Arrivals | None:
        if not shares:
            return None
        left, right = (port.gather(shares, side) for side, port in enumerate(self.ports))
        return left, right

    def apply(self, segments: Segments, meta: Any, arrived: Arrivals, place: Place) -> Applied:
        meta = meta or {}
        stored = meta.get("reached", [[], []])
        before = (self.ports[0].from_stored(stored[0]), self.ports[1].from_stored(stored[1]))
        after = (self.ports[0].after(before[0], arrived[0]), self.ports[1].after(before[1], arrived[1]))
        past = meta.get("marks", [None, None])
        was = (later(self.ports[0].mark(before[0]), past[0]), later(self.ports[1].mark(before[1]), past[1]))
        silent = [
            port.silences(known, meta.get(PASSED, 0), these)
            for port, known, these in zip(self.ports, meta.get(SILENT, [[], []]), arrived, strict=True)
        ]
        now = self._marks(was, after, silent)
        rows, behind = self._in_time(arrived, before, was)
        late = sum(0 if these is None else these.num_rows for these in behind)
        kept, output = self.step(segments, rows, was, now, place)
        timeless = [None if these is None else these.timeless for these in arrived]
        for alone in (behind[LEFT], timeless[LEFT]):
            if self.outer and alone is not None:
                output = pa.concat_tables([output, self.padded(alone)])
        new_meta = {
            "reached": [port.to_stored(known) for port, known in zip(self.ports, after, strict=True)],
            "marks": list(now),
            **self._counted(meta, arrived),
            **self.ports[0].noted(meta, [p.to_stored(s) for p, s in zip(self.ports, silent, strict=True)]),
        }
        return Applied(kept, (output,), new_meta, left_out(late, *arrived))

    def reached(self, meta: Any) -> int | None:
        """Pairs come in the order of time: what comes is not earlier than either watermark."""
        marks = (meta or {}).get("marks", [None, None])
        return None if None in marks else min(marks)

    @property
    def counts_rows(self) -> bool:
        """Whether somebody needs to know how many rows the ports had."""
        return False

    def _counted(self, meta: Any, arrived: Arrivals) -> dict[str, Any]:
        if not self.counts_rows:
            return {}
        came = [0 if these is None else these.total for these in arrived]
        return {"rows": [had + more for had, more in zip(meta.get("rows", (0, 0)), came, strict=True)]}

    def at(self, meta: Any, now_us: int) -> Any:
        return self.ports[0].clocked(meta, now_us)

    def resumed(self, meta: Any) -> Any:
        return self.ports[0].resumed(meta)

    def _marks(self, was: Marks, reached: Reached, silent: Sequence[dict[int, int]]) -> Marks:
        """The watermarks after a step. They never fall, also if an idle source comes back."""
        found = [port.mark(reached[side], silent[side]) for side, port in enumerate(self.ports)]
        idle = [len(port.idle(silent[side])) == len(port.sources) for side, port in enumerate(self.ports)]
        left, right = (found[1 - side] if idle[side] else found[side] for side in (0, 1))
        return later(left, was[0]), later(right, was[1])

    @abstractmethod
    def step(
        self, segments: Segments, rows: Sides, was: Marks, now: Marks, place: Place
    ) -> tuple[Segments, pa.Table]:
        """(new segments, output) from the rows of each side that are in time, and the watermarks before and after."""

    def padded(self, late: pa.Table) -> pa.Table:
        """Output rows of left rows that came too late to meet anybody."""
        return self.shape.alone(late, np.arange(late.num_rows), self.schemas[RIGHT])

    def fresh(self, side: int, pile: Pile, rows: pa.Table | None) -> SideRows:
        """Rows of one side that arrived, as they will be kept: by event time."""
        return pile.empty() if rows is None else pile.fresh(rows, self.ports[side].times(rows))

    def _in_time(self, arrived: Arrivals, before: Reached, was: Marks) -> tuple[Sides, Sides]:
        """(the rows of each side that are in time, those that are late)."""
        found: list[pa.Table | None] = []
        late: list[pa.Table | None] = []
        for port, these, known, mark in zip(self.ports, arrived, before, was, strict=True):
            if these is None:
                found.append(None)
                late.append(None)
                continue
            marks = np.maximum(port.marks(these, known), NEVER if mark is None else mark)
            in_time = port.times(these.rows) >= marks
            found.append(these.rows if in_time.all() else these.rows.filter(pa.array(in_time)))
            late.append(None if in_time.all() else these.rows.filter(pa.array(~in_time)))
        return (found[0], found[1]), (late[0], late[1])


def with_keys(rows: pa.Table, by: Sequence[str]) -> Bools:
    """Which rows have a whole key: null is equal to nothing."""
    masks = [rows.column(name).is_valid().to_numpy() for name in by if rows.column(name).null_count]
    return reduce(np.logical_and, masks) if masks else np.ones(rows.num_rows, dtype=np.bool_)


def chosen(rows: pa.Table, mask: Bools) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))


def between(side: SideRows, low: int | None, high: int | None) -> pa.Table:
    """The rows from `low` up to, but without, `high`; without `high` none."""
    if high is None:
        return side.table.slice(0, 0)
    return side.table.filter(pa.array((side.at < high) & (side.at >= (NEVER if low is None else low))))


def released(pile: Pile, kept: Segments, new: SideRows, since: int | None, upto: int | None) -> pa.Table:
    """The waiting rows that a watermark has passed now. A kept segment may still hold some that came out before."""
    ready = [between(pile.rows(segment), since, upto) for segment in kept]
    return pa.concat_tables([*ready, between(new, None, upto)])


def not_before(mark: int | None) -> Needed:
    """Rows that the watermark has not passed are needed."""

    def needed(side: SideRows) -> Bools | None:
        if mark is None or not len(side):
            return None
        waits = side.at >= mark
        return None if waits.all() else waits

    return needed
