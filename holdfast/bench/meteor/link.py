"""A store behind a network of a given bandwidth, as in document 002: the machine's own disk is many times faster than what elements of
a cluster share."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.bench.measure.side_holdfast import CountingStore
from holdfast.store.base import LocalSegment, SegmentRef

GIGABIT = 125_000_000.0
"""Bytes per second of the document's network."""
TURN = 1 << 20
"""Bytes that one sends before it is somebody else's turn."""


class LinkedStore(CountingStore):
    """Every byte takes its time on one link that all share; None: the machine's own disk."""

    def __init__(self, path: Path, bytes_per_s: float | None) -> None:
        super().__init__(path)
        self._bytes_per_s = bytes_per_s
        self._link = threading.Lock()

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        self._send(sum(len(value) for value in pairs.values()))
        super().put(entry, pairs)

    def put_segments(self, entry: str, segments: Sequence[LocalSegment]) -> list[SegmentRef]:
        refs = super().put_segments(entry, segments)
        self._send(sum(ref.size for ref in refs))
        return refs

    def get(self, entry: str, key: str) -> bytes | None:
        value = super().get(entry, key)
        self._send(len(value or b""))
        return value

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        super().fetch_segment(ref, local)
        self._send(ref.size)

    def _send(self, size: int) -> None:
        """In turns with the others who send."""
        if self._bytes_per_s is None:
            return
        for begin in range(0, size, TURN):
            with self._link:
                time.sleep(min(TURN, size - begin) / self._bytes_per_s)
