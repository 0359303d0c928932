"""As-of join: each left row with the latest right row of its key that is not later than itself.

A left row waits until the right stream's watermark has passed its time: then no earlier right row can come that is in
time. So rows come out in the order of their event times, whichever stream runs ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.operators.joins import joining
from holdfast.operators.joins.joining import LEFT, RIGHT, Marks, Sides, TimedJoin
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.logic import Place, Segments, by_position, longs
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import I64
from holdfast.state.joins.pairs import SideRows, latest, sorted_side
from holdfast.state.joins.sides import Pile
from holdfast.state.windows.watermarks import NEVER

_ORDINAL_BITS = 40
"""Bits for the number of a row in its file or segment, in the positions of the output."""


@dataclass(frozen=True)
class AsofJoin(TimedJoin):
    """`tolerance_us`: how much older the right row may be. `exact`: it may be of the very same time. `stamp`: the
    number of this operator if its output carries positions: time, then the left row's own place."""

    tolerance_us: int | None
    exact: bool
    stamp: int | None = None

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.shape.output, self.stamp is not None),)

    @property
    def piles(self) -> tuple[Pile, ...]:
        waiting = pa.schema([*self.schemas[LEFT], *POSITION_FIELDS])
        return Pile(0, self.ports[LEFT].by, waiting), Pile(1, self.ports[RIGHT].by, self.schemas[RIGHT])

    def step(
        self, segments: Segments, rows: Sides, was: Marks, now: Marks, place: Place
    ) -> tuple[Segments, pa.Table]:
        waiting, known = self.piles
        kept_waiting, kept_known = waiting.among(segments), known.among(segments)
        arrived = rows[RIGHT]
        if arrived is not None:  # among equal times the last one counts
            in_order = by_position(arrived)
            arrived = joining.chosen(in_order, joining.with_keys(in_order, known.by))
        new, fresh = self.fresh(LEFT, waiting, rows[LEFT]), self.fresh(RIGHT, known, arrived)
        left_mark, right_mark = now
        wait = [*(waiting.rows(segment) for segment in kept_waiting), new]
        rights = [*(known.rows(segment) for segment in kept_known), fresh]
        ready = joining.released(waiting, kept_waiting, new, was[RIGHT], right_mark)
        output = self._matched(sorted_side(ready, waiting.by), rights)
        still = [_not_before(side, right_mark) for side in wait]
        first_needed = _earliest(left_mark, still)
        still_waiting = waiting.advance(kept_waiting, new, joining.not_before(right_mark), place)
        still_known = known.advance(
            kept_known, fresh, lambda side: self._known_needed(side, first_needed), place
        )
        return still_waiting + still_known, output

    def padded(self, late: pa.Table) -> pa.Table:
        waiting = self.piles[LEFT]
        return self._matched(self.fresh(LEFT, waiting, late), [])

    def _matched(self, left: SideRows, rights: Sequence[SideRows]) -> pa.Table:
        """Each released row with the best of all rights; among equal times the one that came last."""
        low = np.full(len(left), NEVER) if self.tolerance_us is None else left.at - self.tolerance_us
        high = left.at if self.exact else left.at - 1
        best_time = np.full(len(left), NEVER)
        best_side = np.full(len(left), -1)
        best_row = np.full(len(left), -1)
        for number, right in enumerate(rights):
            if not len(right):
                continue
            row = latest(left, low, high, right)
            time = np.where(row >= 0, right.at[row], NEVER)
            better = (row >= 0) & (time >= best_time)
            best_time[better], best_side[better], best_row[better] = time[better], number, row[better]
        found = np.flatnonzero(best_side >= 0)
        found = found[joining.with_keys(left.table, left.by)[found]]
        taken = []
        met = np.zeros(len(left), dtype=np.bool_)
        tables = []
        for number, right in enumerate(rights):
            of = found[best_side[found] == number]
            table, counts = self.shape.rows(left.table, of, right.table, best_row[of])
            tables.append(table)
            taken.append(of[counts])
            met[of[counts]] = True
        if self.outer:
            alone = np.flatnonzero(~met)
            tables.append(self.shape.alone(left.table, alone, self.schemas[RIGHT]))
            taken.append(alone)
        output = pa.concat_tables([self.shape.output.empty_table(), *tables])
        return self._in_order(output, left, np.concatenate([np.zeros(0, dtype=np.int64), *taken]))

    def _in_order(self, output: pa.Table, left: SideRows, rows: I64) -> pa.Table:
        """By event time, then by the left row's place; with positions where somebody orders by them."""
        _, ordinals, numbers = (longs(left.table, name)[rows] for name in POSITION_COLUMNS)
        order = np.lexsort((numbers, ordinals, left.at[rows]))
        output = output.take(pa.array(order))
        if self.stamp is None:
            return output
        source = pa.array(np.full(len(order), self.stamp, dtype=np.int32))
        place = (ordinals[order] << _ORDINAL_BITS) + numbers[order]
        stamps = (source, pa.array(left.at[rows][order]), pa.array(place))
        for field, column in zip(POSITION_FIELDS, stamps, strict=True):
            output = output.append_column(field, column.cast(field.type))
        return output

    def _known_needed(self, side: SideRows, first: int) -> Bools | None:
        """A right row is superseded by a later one of its key that is older than every left row to come."""
        if not len(side) or first == NEVER:
            return None
        needed = np.ones(len(side), dtype=np.bool_)
        same_key = side.hashes[1:] == side.hashes[:-1]
        if not side.collides:
            needed[:-1] = ~(same_key & (side.at[1:] < first))
        if self.tolerance_us is not None:
            needed &= side.at + self.tolerance_us >= first
        return None if needed.all() else needed


def _not_before(side: SideRows, mark: int | None) -> I64:
    return side.at if mark is None else side.at[side.at >= mark]


def _earliest(mark: int | None, waiting: Sequence[I64]) -> int:
    """No left row to be matched from now on is earlier. NEVER: there may be any."""
    if mark is None:
        return int(NEVER)
    return min([mark, *(int(times.min()) for times in waiting if len(times))])
