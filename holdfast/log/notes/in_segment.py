"""The notes of one segment, in order or from the last to the first, as far as they count.

A note alone that lies at the end of a closed tail counts as the next tail's, which begins with a copy of it: so every place
belongs to one segment, and what lies in front of a position stays or goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.log import segments
from holdfast.log.format import notes_file, parquet_segment, tail
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.frame import Kind
from holdfast.log.format.index import Place
from holdfast.log.format.names import SegmentName, Stretch, notes_name, parse
from holdfast.log.format.note import Carried, Note, is_withdrawn
from holdfast.log.format.tail import Placed, TailHeader
from holdfast.log.machines.partition_state import Ranges
from holdfast.log.place import LogFacts


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which notes are looked for."""

    writer: str | None
    """None: of all."""
    low: int
    """None that lie before it."""
    end: int
    """None whose rows begin there or behind; those alone count at once."""
    withdrawn: Ranges = ()
    backwards: bool = True
    begin: int = 0
    """Forwards: nobody asks for those that lie before the frame with this row. A few of them may come."""

    def is_of(self, placed: Placed) -> bool:
        """Whether a frame is a note of the writer."""
        return placed.frame.kind is Kind.NOTE and self.writer in (None, placed.frame.writer)

    def has(self, note: Note, stretch: Stretch) -> bool:
        if not max(self.low, stretch.start) <= note.position:
            return False
        if stretch.end is not None and note.position >= stretch.end:
            return False
        return not (note.rows and note.position >= self.end) and not is_withdrawn(note, self.withdrawn)


def notes_in(
    facts: LogFacts, partition: int, stretch: Stretch, wanted: Wanted, limit: int | None = None
) -> Iterator[tuple[str, Note]]:
    """(writer, note). `limit`: the offset up to which a tail counts. FileNotFoundError: the segment was merged or trimmed."""
    path = facts.directory(partition) / str(stretch.name)
    read = _in_tail if stretch.name.is_tail else _in_parquet
    for writer, note in read(path, facts, stretch.name, wanted, limit):
        if wanted.has(note, stretch):
            yield writer, note


def _in_parquet(
    path: Path, facts: LogFacts, name: SegmentName, wanted: Wanted, _: int | None
) -> Iterator[tuple[str, Note]]:
    with parquet_segment.open_parquet(path) as file:
        expected = parquet_segment.read_footer(file, path, facts.id).notes
    if expected is not None:
        yield from notes_file.read_notes(
            path.with_name(notes_name(name)), expected, wanted.writer, wanted.backwards
        )


def _in_tail(
    path: Path, facts: LogFacts, name: SegmentName, wanted: Wanted, limit: int | None
) -> Iterator[tuple[str, Note]]:
    with FileBytes(path, limit) as file:
        if wanted.backwards:
            header = tail.decode_header(file, path, facts.id, name)
            places = segments.load_index(path, facts.id, file, header).places
            pieces = _pieces(file, header, places, facts.id_bytes, wanted)
            found: Iterator[Placed] = (placed for piece in pieces for placed in reversed(piece))
        else:
            found = segments.frames_from(file, path, facts.id, name, wanted.begin, None)
        for placed in found:
            if not wanted.is_of(placed):
                continue
            if not tail.is_whole(file, placed.offset, placed.frame):
                raise tail.damaged(path, placed.offset, placed.frame.position)
            yield placed.frame.writer, Note.of(placed.frame, tail.payload_of(file, placed))


def _pieces(
    file: FileBytes, header: TailHeader, places: list[Place], log: bytes, wanted: Wanted
) -> Iterator[list[Placed]]:
    """The notes of a tail, piece by piece as an index cuts it, the last one first. An index whose places do not meet is not
    believed: then all that is left is one piece."""
    end = file.size
    for place in reversed(places):
        found, reached = _frames(file, header, place, log, end, wanted)
        if place.offset >= end or not (reached == end or place.offset < reached < end == file.size):
            break
        yield found
        end = place.offset
    if end > header.bytes:
        yield _frames(file, header, Place(header.state.next, header.bytes, 0), log, end, wanted)[0]


def _frames(
    file: FileBytes, header: TailHeader, place: Place, log: bytes, end: int, wanted: Wanted
) -> tuple[list[Placed], int]:
    """The notes from a place up to an offset, and how far whole frames lead: less far if the end was torn."""
    reached, found = place.offset, []
    at = tail.start_at(place.offset, place.position, header.name, header.partition)
    for placed in tail.scan(file, file.size, at, log, limit=end, payloads=False):
        reached = placed.offset + placed.frame.bytes
        if wanted.is_of(placed):
            found.append(placed)
    return found, reached


def behind_rows(path: Path, facts: LogFacts, header: TailHeader, begin: int, end: int) -> list[Carried]:
    """Notes alone between two offsets of a tail, behind its last row, for the tail with `header`, which follows it."""
    if begin >= end:
        return []
    name = parse(path.name)
    assert name is not None
    carried = []
    with FileBytes(path, end) as file:
        at = tail.start_at(begin, header.state.next, name, header.partition)
        for placed in tail.scan(file, end, at, facts.id_bytes):
            if placed.frame.kind is Kind.NOTE:
                frame = replace(placed.frame, token=header.name.token)
                carried.append(Carried(frame, bytes(tail.payload_of(file, placed))))
    return carried
