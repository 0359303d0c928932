"""The newest rows and notes of a partition in memory, for readers that have caught up."""

from __future__ import annotations

import bisect
from collections import deque
from itertools import islice

import pyarrow as pa

from holdfast.log.format.body import Body
from holdfast.log.format.frame import Frame, Kind
from holdfast.log.format.note import Note


class Recent:
    """Frames with rows or notes, oldest first, and what they carry. Whoever uses it holds the lock of its partition."""

    def __init__(self, next_position: int, bytes_max: int) -> None:
        self.first = next_position
        """Rows from this position on are here."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._frames: deque[tuple[Frame, Body]] = deque()

    def add(self, frame: Frame, body: Body) -> None:
        self._frames.append((frame, body))
        self._bytes += body.size
        while self._bytes > self._bytes_max and self._frames:
            gone, freed = self._frames.popleft()
            self._bytes -= freed.size
            self.first = gone.next

    def find(self, position: int) -> tuple[Frame, pa.Buffer] | None:
        """The frame with this row, and its rows. None: it has left memory."""
        # Of frames at one position the one with rows is the last.
        at = bisect.bisect_right(self._frames, position, key=lambda each: each[0].position) - 1
        if at < 0 or position >= self._frames[at][0].next:
            return None
        return self._frames[at][0], self._frames[at][1].rows

    def notes(self, writer: str, start: int, end: int) -> list[Note] | None:
        """Notes of a writer that came with rows of [start, end), or stand alone from `start` to `end`. None: some have left memory."""
        if start < self.first:
            return None
        at = bisect.bisect_left(self._frames, start, key=lambda each: each[0].next)
        found = []
        for frame, body in islice(self._frames, at, None):
            if frame.position > end:
                break
            if frame.kind is Kind.NOTE and frame.writer == writer:
                found.append(Note.of(frame, memoryview(body.head)))
        return [note for note in found if note.touches(start, end)]
