"""Names of segments, and which of the files of a partition count.

    <first position>-<token>.tail                          frames; grows as long as its owner writes
    <first position>-<next position>-<token>-<crc>-<crc of the footer>.parquet
                                                           immutable; the first checksum is that of all its bytes

A tail does not say in its name where it ends: at the next segment's first position, or, if there is none, at its last
whole frame. What an earlier owner wrote behind that never counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

POSITION_DIGITS = 20
TOKEN_DIGITS = 10
TAIL = ".tail"
LIVE = ".live"
PARQUET = ".parquet"
INDEX = ".index"
NOTES = ".notes"

_TAIL = re.compile(r"(\d{20})-(\d{10})\.tail")
_PARQUET = re.compile(r"(\d{20})-(\d{20})-(\d{10})-([0-9a-f]{8})-([0-9a-f]{8})\.parquet")


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What the name of a segment says; of a tail its first position and its owner only."""

    first: int
    token: int
    end: int | None = None
    crc: int | None = None
    footer_crc: int | None = None

    @property
    def is_tail(self) -> bool:
        return self.end is None

    def __str__(self) -> str:
        first = f"{self.first:0{POSITION_DIGITS}d}"
        token = f"{self.token:0{TOKEN_DIGITS}d}"
        if self.end is None:
            return f"{first}-{token}{TAIL}"
        sums = f"{self.crc or 0:08x}-{self.footer_crc or 0:08x}"
        return f"{first}-{self.end:0{POSITION_DIGITS}d}-{token}-{sums}{PARQUET}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A segment, and the positions that count of it: from `start` up to, not including, `end`; None: as far as it goes."""

    name: SegmentName
    start: int
    end: int | None


def parse(name: str) -> SegmentName | None:
    """None: not a segment."""
    if found := _TAIL.fullmatch(name):
        return SegmentName(int(found[1]), int(found[2]))
    if found := _PARQUET.fullmatch(name):
        return SegmentName(int(found[1]), int(found[3]), int(found[2]), int(found[4], 16), int(found[5], 16))
    return None


def live_name(tail: SegmentName) -> str:
    """Where the owner tells other processes how far its tail is acknowledged."""
    return str(tail).removesuffix(TAIL) + LIVE


def index_name(segment: SegmentName) -> str:
    return str(segment) + INDEX


def notes_name(segment: SegmentName) -> str:
    """Where the notes of a Parquet segment are, if it has any."""
    return str(segment) + NOTES


def lay_out(names: Iterable[str]) -> list[Stretch]:
    """The segments that count, in order of positions.

    Files that a merge replaced, or an owner left empty, may still be there: a Parquet segment counts before tails of the
    same positions, a longer one before those that it holds, a newer owner's tail from its first position on.
    Gaps are not looked for here: see `gap`.
    """
    found = [name for name in map(parse, names) if name is not None]
    sealed = _outermost([name for name in found if not name.is_tail])
    tails = _newest_by_first([name for name in found if name.is_tail])
    stretches = [Stretch(name, name.first, name.end) for name in sealed]
    for here, behind in zip(tails, [*tails, None][1:], strict=True):
        end = None if behind is None else behind.first
        start = here.first
        for name in sealed:  # what Parquet holds already does not count again
            if name.first <= start and name.end is not None and start < name.end:
                start = name.end
            elif name.first > start and (end is None or name.first < end):
                end = name.first
        if end is None or start < end:
            stretches.append(Stretch(here, start, end))
    return sorted(stretches, key=lambda each: (each.start, each.end is None))


def gap(stretches: Sequence[Stretch], low: int) -> tuple[int, int] | None:
    """The first positions at or above `low` that are in no segment, though later ones are."""
    reached = low
    for each in stretches:
        if each.start > reached:
            return reached, each.start
        if each.end is not None:
            reached = max(reached, each.end)
    return None


def superfluous(names: Iterable[str], stretches: Sequence[Stretch]) -> list[str]:
    """Segments and their side files that no stretch uses any more. The newest tail is always used."""
    listed = list(names)
    used = {str(each.name) for each in stretches}
    used |= {live_name(each.name) for each in stretches if each.name.is_tail}
    used |= {index_name(each.name) for each in stretches}
    used |= {notes_name(each.name) for each in stretches}
    ours = (INDEX, LIVE, NOTES, TAIL, PARQUET)
    return sorted(name for name in listed if name.endswith(ours) and name not in used)


def _outermost(sealed: list[SegmentName]) -> list[SegmentName]:
    chosen: list[SegmentName] = []
    reached = -1
    for name in sorted(sealed, key=lambda n: (n.first, -(n.end or 0), -n.token)):
        if (name.end or 0) > reached:
            chosen.append(name)
            reached = name.end or 0
    return chosen


def _newest_by_first(tails: list[SegmentName]) -> list[SegmentName]:
    """An owner begins behind what it found: what an earlier one has at or behind the first position of a newer one's tails
    does not count."""
    chosen: list[SegmentName] = []
    reached: int | None = None
    for name in sorted(tails, key=lambda n: (-n.token, -n.first)):
        newer = chosen[-1] if chosen else None
        if newer is None or newer.token == name.token or reached is None or name.first < reached:
            chosen.append(name)
            reached = name.first if reached is None else min(reached, name.first)
    return chosen[::-1]
