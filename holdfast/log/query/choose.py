"""Where wanted rows can lie: segments are left out by what they say of themselves, before a row is read.

Of a Parquet segment the footer has the times of each group, of a tail each frame has those of its rows, and its index where to begin.
Only rows that count now are chosen: none that was withdrawn, trimmed, or is of an epoch under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from holdfast.errors import StoreError
from holdfast.log import place, segments
from holdfast.log.format import parquet_segment
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.parquet_segment import Footer
from holdfast.log.machines.partition_state import Ranges
from holdfast.log.machines.reader_machine import Facts
from holdfast.log.place import LogFacts
from holdfast.log.query.wanted import Bounds, Wanted, runs_of
from holdfast.log.reader import TrimmedError
from holdfast.log.segments import SegmentRange

TRIES = 20
"""Segments may be merged while one looks, but not again and again."""


class Asked(Protocol):
    """What is needed of a log."""

    @property
    def facts(self) -> LogFacts: ...

    def bounds(self, partition: int = 0, *, committed: bool = True) -> Facts: ...

    def ranges(
        self, start: int, end: int, *, partition: int = 0, committed: bool = True
    ) -> list[SegmentRange]: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """A segment that can have wanted rows."""

    partition: int
    where: SegmentRange
    runs: Ranges
    """Positions that can be wanted."""
    is_whole: bool
    """It is Parquet, and no row of it lies outside of the wanted positions: whoever reads the file needs to look at times only."""

    @property
    def rows(self) -> int:
        """At most."""
        return sum(end - start for start, end in self.runs)


@dataclass(frozen=True, slots=True)
class Selection:
    """Where the rows that somebody wants lie now. A value that travels."""

    facts: LogFacts
    wanted: Wanted
    chosen: tuple[Chosen, ...]
    segments: int
    """Of the partitions, with those that were left out."""


def choose(log: Asked, wanted: Wanted) -> Selection:
    """Look at what is there now. TrimmedError: rows from a wanted position on are gone."""
    for _ in range(TRIES):
        try:
            chosen: list[Chosen] = []
            count = 0
            for partition in range(log.facts.partitions):
                found = _ranges(log, partition, wanted)
                count += len(found)
                chosen += filter(None, (_look(partition, where, wanted) for where in found))
            return Selection(log.facts, wanted, tuple(chosen), count)
        except FileNotFoundError:
            continue
    raise StoreError(
        f"segments of the log {log.facts.root} vanish whenever they are looked at.",
        cure="Look for something else that removes its files.",
    )


def _ranges(log: Asked, partition: int, wanted: Wanted) -> list[SegmentRange]:
    start = wanted.start.get(partition)
    found = log.ranges(start or 0, log.bounds(partition).end, partition=partition)
    low = log.bounds(partition).low  # behind the look: what goes meanwhile is noticed
    if start is not None and start < low:
        why = place.read_low(log.facts, partition).because
        raise TrimmedError(
            f"the rows from position {start} to {low} of partition {partition} of the log {log.facts.root}"
            f" were trimmed{f' ({why})' if why else ''}.",
            cure=f"Begin at {low}.",
        )
    return found


def _look(partition: int, where: SegmentRange, wanted: Wanted) -> Chosen | None:
    if where.name.is_tail:
        pieces = _frames(where, wanted) if wanted.is_timed else _all_of(where)
        is_whole = False
    else:
        footer = _footer(where.path, where.log)
        pieces = _groups(footer)
        is_whole = where.start <= footer.first and footer.end <= where.end
    runs = runs_of(wanted, pieces, where.start, where.end)
    return Chosen(partition, where, runs, is_whole) if runs else None


def _all_of(where: SegmentRange) -> Iterator[Bounds]:
    yield Bounds(where.start, where.end, 0, 0)


@lru_cache(maxsize=4096)
def _footer(path: str, log: str) -> Footer:
    """Of a file whose name carries its checksum: it does not change."""
    with parquet_segment.open_parquet(Path(path)) as file:
        return parquet_segment.read_footer(file, Path(path), log)


def _groups(footer: Footer) -> Iterator[Bounds]:
    for group in footer.groups:
        for first, rows in group.runs:
            yield Bounds(first, first + rows, group.t_min, group.t_max)


def _frames(where: SegmentRange, wanted: Wanted) -> Iterator[Bounds]:
    """Of the part of a tail that can have rows so late: by hopping from header to header."""
    path, name = Path(where.path), where.name
    with FileBytes(path) as file:
        for placed in segments.frames_from(file, path, where.log, name, where.start, wanted.since):
            frame = placed.frame
            if frame.position >= where.end:
                return
            if frame.rows:
                yield Bounds(frame.position, frame.next, frame.t_min, frame.t_max)


def read(selection: Selection, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The wanted rows, partition by partition in their order. FileNotFoundError: a segment was merged meanwhile."""
    for each in selection.chosen:
        for start, end in each.runs:
            where = each.where
            piece = SegmentRange(where.path, where.log, start, end, where.withdrawn)
            for batch in segments.read_range(piece, columns):
                rows = selection.wanted.of(batch)
                if rows.num_rows:
                    yield rows
