"""The time of a log in ticks of equal length. Pure: which rows belong to one tick depends on the rows alone.

A row belongs to the tick of the greatest time up to it: rows that are late, and clocks that went back, change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.log.format.frame import NO_TIME


@dataclass(frozen=True, slots=True)
class Cut:
    """The first `rows` rows belong to `tick`."""

    rows: int
    tick: int


class Ticks:
    """Counts ticks from the first row that has a time."""

    def __init__(self, length_us: int, origin: int | None = None, greatest: int | None = None) -> None:
        self._length = length_us
        self.origin = origin
        self.greatest = greatest
        """The greatest time of the rows that were cut."""

    @property
    def place(self) -> tuple[int | None, int | None]:
        """What another one needs to go on."""
        return self.origin, self.greatest

    def cut(self, times: pa.Array, tick: int | None) -> Cut:
        """How many of these rows, which come next, belong to `tick`, or, if it is None, to the tick of the first of them."""
        at = times.cast(pa.int64()).fill_null(NO_TIME).to_numpy(zero_copy_only=False)
        if not len(at):
            return Cut(0, tick or 0)
        known = at[at != NO_TIME]
        origin = self.origin if self.origin is not None else (int(known[0]) if len(known) else None)
        before = NO_TIME if self.greatest is None else self.greatest
        running = np.maximum.accumulate(np.maximum(at, before))
        if origin is None:
            ticks = np.zeros(len(at), dtype=np.int64)
        else:
            ticks = (np.maximum(running, origin) - origin) // self._length
        wanted = int(ticks[0]) if tick is None else tick
        rows = int(np.searchsorted(ticks, wanted, side="right")) if int(ticks[0]) == wanted else 0
        if rows:
            self.origin = origin
            self.greatest = None if running[rows - 1] == NO_TIME else int(running[rows - 1])
        return Cut(rows, wanted)
