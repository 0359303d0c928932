"""How many rows an element of a region has read from its sources since an epoch: a reset to it reads them again."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.ids import Epoch
from holdfast.runtime.element.loop import ElementLoop


class Rereading:
    """Of one element. Called by its thread; `since_restore` by any. `tell`: is given the rows that will be read again."""

    def __init__(self, loop: ElementLoop, tell: Callable[[int], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._at: dict[Epoch, int] = {}
        """Rows read when an epoch was pinned or restored."""
        self._restored_at = 0

    @property
    def since_restore(self) -> int:
        """Rows read from sources since the last restore."""
        reads = self._loop.worker.sources or self._loop.worker.begins
        return self._loop.metrics.rows - self._restored_at if reads else 0

    def pinned(self, epoch: Epoch) -> None:
        self._at[epoch] = self._loop.metrics.rows

    def restored(self, epoch: Epoch) -> None:
        rows = self._loop.metrics.rows
        if self._loop.worker.sources:
            self._tell(rows - self._at.get(epoch, rows))
        self._at = {epoch: rows}
        self._restored_at = rows
