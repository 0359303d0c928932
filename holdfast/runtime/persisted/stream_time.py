"""Event time in a persisted stream whose rows alone do not tell it: the watermark goes through the log beside them.

Where rows enter, a clock follows the times beside them and says at which row the watermark rises; that is a note, in one frame with
the rows. Steps without rows move time on as well: outside of regions by a note alone, which counts at once as rows do. In a region
such a note would count before its epoch does; there the clock is part of the sink's epoch, and both ends share how far time has come
behind all rows that count. The next rows repeat it, so whoever reads old rows finds in the log all that matters for them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.operators.python.hosted_clock import Clock
from holdfast.runtime.persisted.stream_notes import Rise
from holdfast.state.keyed.expiry import LONG_AGO
from holdfast.state.windows.watermarks import is_closed


class StreamTime:
    """Of one persisted stream in one run. The end where rows enter calls all but `reached`."""

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self._beside: Sequence[pa.Table] | None = None
        """Times beside the rows of the step under way; None: there is none, or its rows were seen."""
        self._lock = threading.Lock()
        self._reached: Rise | None = None

    # --- where rows enter ---

    def use(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def is_kept(self) -> bool:
        """Whether anybody behind the log goes by time that rows do not tell."""
        return self._clock is not None

    @property
    def clock(self) -> Clock:
        assert self._clock is not None, "asked of a stream without a clock"
        return self._clock

    def begin(self, beside: Sequence[pa.Table], now_us: int) -> None:
        """A step begins."""
        self.clock.begin(now_us)
        self._beside = beside

    @property
    def is_due(self) -> bool:
        """Whether a step has begun whose rows, if it has any, were not seen."""
        return self._beside is not None

    def passed(self, rows: pa.Table) -> list[Rise]:
        """The rows of the step, in the order in which they enter: where the watermark rises, and what it was before them."""
        clock, beside, self._beside = self.clock, self._beside or (), None
        before = clock.watermark
        ahead = clock.ahead(0, rows, beside)
        assert ahead is not None
        behind = clock.pass_by(ahead, rows.num_rows)
        rises = [(0, before)] if before > LONG_AGO and rows.num_rows else []
        rises += ahead.rises.items()
        if behind:
            rises.append((rows.num_rows, clock.watermark))
        return [(row, mark) for row, mark in rises if not is_closed(mark)]

    def restore(self, stored: Mapping[str, Any] | None) -> None:
        """None: as at the beginning."""
        self._beside = None
        self.clock.restore(stored)

    def tell(self, position: int, watermark: int) -> None:
        """All rows that count lie before `position`, and behind them time has come so far."""
        if watermark > LONG_AGO and not is_closed(watermark):
            with self._lock:
                before = LONG_AGO if self._reached is None else self._reached[1]
                self._reached = (position, max(watermark, before))

    # --- where rows leave ---

    @property
    def reached(self) -> Rise | None:
        """What was told last. Any thread may ask."""
        with self._lock:
            return self._reached
