"""What a window join with eventual checkpoints does again after a restore: rows of its streams enter their windows, and meet nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.operators.joins.joining import chosen, with_keys
from holdfast.operators.joins.window_join import RANK, Arrived, WindowJoin
from holdfast.operators.shared.logic import Applied, KeyedLogic, Place, PortRows, Segments, Share, longs

ROWS, UNTIL = "rows", "until"


@dataclass(frozen=True)
class Entering(KeyedLogic):
    """`meta`: {"rows": where each stream stands, "until": where it stood when the newest note was written}, as numbers of rows."""

    join: WindowJoin

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return self.join.columns

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return self.join.outputs

    def own(self, rows: PortRows, partition: int, partitions: int) -> Any:
        return self.join.own(rows, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return self.join.shares(port, rows, partitions)

    def gather(self, shares: Sequence[Share]) -> Any:
        return self.join.gather(shares)

    def apply(
        self, segments: Segments, meta: Any, arrived: tuple[Arrived | None, Arrived | None], place: Place
    ) -> Applied:
        had, until, left = list(meta[ROWS]), meta[UNTIL], list(segments)
        for side, pile in enumerate(self.join.piles):
            these = arrived[side]
            if these is None:
                continue
            kept = pile.among(segments)
            rows = chosen(these.rows, with_keys(these.rows, self.join.by[side]))
            numbers = had[side] + 1 + longs(rows, RANK)
            size = self.join.windows[side].rows or 0
            needed = (numbers > until[side] - size) & (numbers <= until[side])
            fresh = pile.fresh(rows.filter(pa.array(needed)), numbers[np.flatnonzero(needed)])
            left = [segment for segment in left if segment not in kept]
            left += pile.advance(kept, fresh, lambda _: None, place)
            had[side] += these.total
        return Applied(tuple(left), (self.join.shape.output.empty_table(),), {ROWS: had, UNTIL: until})

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        raise NotImplementedError("a replay begins with as many partitions as it ends with")


def rows_of(meta: Mapping[str, Any] | None) -> tuple[int, int]:
    """How many rows each stream of a join has brought where this is its `meta`."""
    left, right = (meta or {}).get(ROWS, (0, 0))
    return left, right
