"""How much passes through an operator that is hosted in the driver; whoever uses it for heavy work is told, once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pyarrow as pa

logger = logging.getLogger("holdfast.element")

ROWS_PER_S = 50_000
BYTES = 100 << 20
WATCHED_S = 5.0
"""A rate is that of at least this long."""


class DriverLoad:
    """Of one operator in one run. Used by the thread of its element."""

    def __init__(self, operator: str, now: Callable[[], float] = time.monotonic) -> None:
        self._operator = operator
        self._now = now
        self._began = self._since = now()
        self._all_rows = self._rows = self._bytes = 0
        self._has_warned = False

    def add(self, table: pa.Table, rows: int) -> None:
        """Of the table's rows these were processed."""
        if self._has_warned or not rows:
            return
        self._all_rows += rows
        self._rows += rows
        self._bytes += table.nbytes * rows // table.num_rows
        watched_s = self._now() - self._since
        if self._bytes > BYTES or (watched_s >= WATCHED_S and self._rows > ROWS_PER_S * watched_s):
            self._tell()
        elif watched_s >= WATCHED_S:
            self._since, self._rows = self._now(), 0

    def _tell(self) -> None:
        self._has_warned = True
        took_s = max(self._now() - self._began, 0.001)
        logger.warning(
            "operator %r is hosted in the driver, and heavy work passes through it: %.0f rows/s, %.0f MB so far. "
            "keyed(…), map_state(…) and map_arrow(…) run on the executors.",
            self._operator,
            self._all_rows / took_s,
            self._bytes / 1e6,
        )
