"""The index of a tail: from position and from time to a place in the file. It is disposable: nothing is lost with it, and
whoever finds it missing, stale or wrong makes it again by hopping from header to header.

    holdfast log-index 1 <log> <segment> <size> <crc>\\n
    <position, offset, greatest time before it> …   three little-endian 64-bit numbers for every SPACING bytes
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from holdfast.errors import HoldfastError
from holdfast.log.format.frame import NO_TIME
from holdfast.log.format.names import SegmentName
from holdfast.log.format.tail import Placed
from holdfast.store import sealed_file

KIND = "log-index"
SPACING = 1 << 17
"""Bytes between two entries, at least."""

_ENTRY = struct.Struct("<QQq")


@dataclass(frozen=True, slots=True)
class Place:
    """A frame begins at `offset` with the row `position`; all rows before it have times up to `t_before`."""

    position: int
    offset: int
    t_before: int


@dataclass(slots=True)
class Index:
    """Places of a tail, ascending. Grows with the tail."""

    places: list[Place]
    _t_run_max: int = NO_TIME

    @staticmethod
    def beginning(position: int, offset: int, t_run_max: int) -> Index:
        return Index([Place(position, offset, t_run_max)], t_run_max)

    def add(self, placed: Placed) -> None:
        """The next frame of the tail."""
        if placed.offset >= self.places[-1].offset + SPACING:
            self.places.append(Place(placed.frame.position, placed.offset, self._t_run_max))
        self._t_run_max = max(self._t_run_max, placed.frame.t_run_max)

    def add_all(self, placed: Iterable[Placed]) -> Index:
        for each in placed:
            self.add(each)
        return self

    def of_position(self, position: int) -> Place:
        """Where to begin to read for the row at `position`: not behind it."""
        # A frame without rows has the position of the one behind it: begin with the first of them.
        at = bisect.bisect_left(self.places, position + 1, key=lambda place: place.position)
        return self.places[max(0, at - 1)]

    def of_time(self, time: int) -> Place:
        """Where to begin to read for the first row that is not before `time`."""
        at = bisect.bisect_left(self.places, time, key=lambda place: place.t_before)
        return self.places[max(0, at - 1)]


def encode(index: Index, log: str, segment: SegmentName) -> bytes:
    data = b"".join(_ENTRY.pack(each.position, each.offset, each.t_before) for each in index.places)
    return sealed_file.seal(KIND, log, str(segment), data)


def decode(data: bytes, log: str, segment: SegmentName) -> Index | None:
    """None: not an index of this segment, or a damaged one."""
    try:
        payload = sealed_file.unseal(data, str(segment), KIND, log, str(segment))
    except HoldfastError:
        return None
    if not payload or len(payload) % _ENTRY.size:
        return None
    places = [Place(*fields) for fields in _ENTRY.iter_unpack(payload)]
    ordered = all(
        a.position <= b.position and a.offset < b.offset and a.t_before <= b.t_before
        for a, b in pairwise(places)
    )
    return Index(places, places[-1].t_before) if ordered else None
