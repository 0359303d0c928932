"""The newest rows of a partition in memory, for readers that have caught up."""

from __future__ import annotations

import bisect
from collections import deque

import pyarrow as pa

from holdfast.log.format.frame import Frame


class Recent:
    """Frames with rows, oldest first, and their payloads. Whoever uses it holds the lock of its partition."""

    def __init__(self, next_position: int, bytes_max: int) -> None:
        self.first = next_position
        """Rows from this position on are here."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._frames: deque[tuple[Frame, pa.Buffer]] = deque()

    def add(self, frame: Frame, payload: pa.Buffer) -> None:
        self._frames.append((frame, payload))
        self._bytes += payload.size
        while self._bytes > self._bytes_max and self._frames:
            gone, freed = self._frames.popleft()
            self._bytes -= freed.size
            self.first = gone.next

    def find(self, position: int) -> tuple[Frame, pa.Buffer] | None:
        """The frame with this row. None: it has left memory."""
        at = bisect.bisect_right(self._frames, position, key=lambda each: each[0].position) - 1
        if at < 0 or position >= self._frames[at][0].next:
            return None
        return self._frames[at]
