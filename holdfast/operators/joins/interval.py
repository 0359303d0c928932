"""Interval join: rows with equal keys whose event times are at most so far apart.

A pair comes out when the later of its rows arrives, and only rows that are late in their own source are left out; so
the pairs do not depend on how the two streams run beside each other. A row is forgotten when no row that is still in
time on the other side could meet it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.operators.joins.joining import LEFT, RIGHT, Marks, Sides, TimedJoin, chosen, with_keys
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.logic import Place, Segments, longs
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import I64
from holdfast.state.joins.pairs import Pairs, SideRows, matches
from holdfast.state.joins.sides import Pile

_STEP = np.int64(-7046029254386353131)


@dataclass(frozen=True)
class IntervalJoin(TimedJoin):
    """The right row's time is at least the left's minus `before_us`, and at most the left's plus `after_us`."""

    before_us: int
    after_us: int
    stamp: int | None = None
    """The number of this operator if its results carry positions: the time of the later row of the pair, then where both
    came from. They come in no order, but not much before the watermark."""

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (with_positions(self.shape.output, self.stamp is not None),)

    @property
    def piles(self) -> tuple[Pile, ...]:
        kept = [with_positions(schema, self.stamp is not None) for schema in self.schemas]
        return tuple(Pile(side, port.by, kept[side]) for side, port in enumerate(self.ports))

    def padded(self, late: pa.Table) -> pa.Table:
        return self._alone(self.fresh(LEFT, self.piles[LEFT], late), np.arange(late.num_rows))

    def _alone(self, left: SideRows, rows: I64) -> pa.Table:
        """Left rows that meet nobody: known when nobody can come any more."""
        output = self.shape.alone(left.table, rows, self.schemas[RIGHT])
        return self._placed(output, left.at[rows] + self.after_us, (left.table, rows))

    def _placed(self, output: pa.Table, times: I64, *origins: tuple[pa.Table, I64]) -> pa.Table:
        """With positions, where somebody needs them."""
        if self.stamp is None:
            return output
        place = np.zeros(len(times), dtype=np.int64)
        with np.errstate(over="ignore"):
            for table, rows in origins:
                for name in POSITION_COLUMNS:
                    place = place * _STEP + longs(table, name)[rows]
        stamps = (np.full(len(times), self.stamp), times, place)
        for field, values in zip(POSITION_FIELDS, stamps, strict=True):
            output = output.append_column(field, pa.array(values).cast(field.type))
        return output

    def step(
        self, segments: Segments, rows: Sides, was: Marks, now: Marks, place: Place
    ) -> tuple[Segments, pa.Table]:
        piles = self.piles
        kept = [pile.among(segments) for pile in piles]
        stored = [[pile.rows(segment) for segment in of] for pile, of in zip(piles, kept, strict=True)]
        fresh, output = [], []
        for side, pile in enumerate(piles):
            arrived = rows[side]
            if arrived is not None:
                whole = with_keys(arrived, pile.by)
                if side == LEFT and self.outer and not whole.all():
                    keyless = self.fresh(LEFT, pile, arrived.filter(pa.array(~whole)))
                    output.append(self._alone(keyless, np.arange(len(keyless))))
                arrived = chosen(arrived, whole)
            fresh.append(self.fresh(side, pile, arrived))
        for right in (*stored[RIGHT], fresh[RIGHT]):
            output.append(self._meet(fresh[LEFT], right))
        for left in stored[LEFT]:
            output.append(self._meet_from_right(left, fresh[RIGHT]))
        if self.outer:
            output += self._lonely(stored, fresh, was[RIGHT], now[RIGHT])
        result = pa.concat_tables([self.outputs[0].empty_table(), *output])
        needed = (lambda side: self._left_needed(side, now), lambda side: self._right_needed(side, now))
        after_step = [pile.advance(kept[n], fresh[n], needed[n], place) for n, pile in enumerate(piles)]
        return tuple(segment for of in after_step for segment in of), result

    def _meet(self, left: SideRows, right: SideRows) -> pa.Table:
        pairs = self._of_left(left, right)
        return self._paired(left, pairs.probe, right, pairs.other)

    def _meet_from_right(self, left: SideRows, right: SideRows) -> pa.Table:
        pairs = matches(right, right.at - self.after_us, right.at + self.before_us, left)
        return self._paired(left, pairs.other, right, pairs.probe)

    def _of_left(self, left: SideRows, right: SideRows) -> Pairs:
        return matches(left, left.at - self.before_us, left.at + self.after_us, right)

    def _met(self, left: SideRows, right: SideRows) -> I64:
        """The left rows of all output rows."""
        pairs = self._of_left(left, right)
        return pairs.probe[self.shape.rows(left.table, pairs.probe, right.table, pairs.other)[1]]

    def _paired(self, left: SideRows, mine: I64, right: SideRows, others: I64) -> pa.Table:
        """Output rows of these pairs."""
        table, counts = self.shape.rows(left.table, mine, right.table, others)
        if self.stamp is None:
            return table
        mine, others = mine[counts], others[counts]
        times = np.maximum(left.at[mine], right.at[others])
        return self._placed(table, times, (left.table, mine), (right.table, others))

    def _lonely(
        self,
        stored: Sequence[Sequence[SideRows]],
        fresh: Sequence[SideRows],
        was: int | None,
        now: int | None,
    ) -> list[pa.Table]:
        """Left rows that from now on can meet nobody, and never did."""
        if now is None:
            return []
        found = []
        for left, is_new in (*((side, False) for side in stored[LEFT]), (fresh[LEFT], True)):
            gone = left.at + self.after_us < now
            if was is not None and not is_new:
                gone &= left.at + self.after_us >= was
            if not gone.any():
                continue
            leaving = SideRows(left.table.filter(pa.array(gone)), left.by)
            alone = np.ones(len(leaving), dtype=np.bool_)
            for right in (*stored[RIGHT], fresh[RIGHT]):
                alone[self._met(leaving, right)] = False
            found.append(self._alone(leaving, np.flatnonzero(alone)))
        return found

    def _left_needed(self, side: SideRows, marks: Marks) -> Bools | None:
        return _from(side, marks[RIGHT], self.after_us)

    def _right_needed(self, side: SideRows, marks: Marks) -> Bools | None:
        """With `outer` also those that a left row still to be judged may have met."""
        needed = _from(side, marks[LEFT], self.before_us)
        if needed is None or not self.outer:
            return needed
        judged = _from(side, marks[RIGHT], self.before_us + self.after_us)
        return None if judged is None else needed | judged


def _from(side: SideRows, mark: int | None, reach: int) -> Bools | None:
    """The rows whose reach ends at or after the watermark; None: all."""
    if mark is None or not len(side):
        return None
    needed = side.at + reach >= mark
    return None if needed.all() else needed
