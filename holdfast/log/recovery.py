"""How an owner finds a partition when it opens a log: what was left is looked up, never assumed.

The newest tail is read to its last whole frame. Torn bytes behind it were never acknowledged and do not count; damage in
front of acknowledged rows is refused. The owner then begins a tail of its own: whoever wrote the old one may still have it
open, but can no longer be mistaken for the owner.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import DamagedError
from holdfast.failpoints import fp
from holdfast.log import place
from holdfast.log.format import names, tail
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.names import SegmentName, Stretch
from holdfast.log.format.note import NewestNotes
from holdfast.log.format.tail import TailHeader
from holdfast.log.machines.partition_state import PartitionState
from holdfast.log.notes import in_segment
from holdfast.log.place import LogFacts
from holdfast.log.tail_file import TailFile
from holdfast.store import sealed_file
from holdfast.store.files.lease import Lease

LOOKS_S = (0, 0, 0.001, 0.01, 0.1)
"""Pauses before each look for a segment that seems to be missing."""

logger = logging.getLogger("holdfast.log")


def layout(facts: LogFacts, partition: int) -> list[Stretch]:
    """The segments that count. DamagedError: some are missing.

    The mark of what was trimmed is read behind the names: it is written before a segment goes. Names that come and go while
    they are listed may be missed, so that a gap counts only if it is there again and again."""
    missing = None
    for pause in LOOKS_S:
        time.sleep(pause)
        found = names.lay_out(sealed_file.list_directory(facts.directory(partition)))
        missing = names.gap(found, place.read_low(facts, partition).position)
        if missing is None:
            return found
    if missing is not None:
        raise DamagedError(
            f"{facts.directory(partition)} lacks the segment with positions {missing[0]} to {missing[1]}.",
            cure="Restore the file from a backup, or trim the log behind it. Nothing was changed.",
        )
    raise AssertionError("looked at least once")


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a partition."""

    state: PartitionState = field(default_factory=PartitionState)
    notes: NewestNotes = field(default_factory=NewestNotes)
    path: Path | None = None
    """The newest tail."""
    rows_end: int = 0
    """The offset in it behind the last frame with rows."""
    end: int = 0


def look_up(facts: LogFacts, partition: int, low: int) -> Found:
    """What is there, made durable."""
    found = layout(facts, partition)
    if not found:
        if low:
            raise no_tail(facts.directory(partition))
        return Found()
    newest = found[-1].name
    if not newest.is_tail:
        raise no_tail(facts.directory(partition))
    path = facts.directory(partition) / str(newest)
    with FileBytes(path) as file, file.locked():  # its writer does not cut it back meanwhile
        file.settle()
        return read_tail(file, path, facts, newest)


def read_tail(file: FileBytes, path: Path, facts: LogFacts, name: SegmentName) -> Found:
    """How it stands behind the last whole frame. DamagedError: something before acknowledged frames is not whole."""
    header = tail.decode_header(file, path, facts.id, name)
    state, offset, rows_end, newest = header.state, header.bytes, header.bytes, header.notes
    for placed in tail.scan(file, file.size, tail.first_frame(header), facts.id_bytes):
        state.apply(placed.frame)
        offset = placed.offset + placed.frame.bytes
        rows_end = offset if placed.frame.rows else rows_end
        newest.apply(placed.frame, tail.payload_of(file, placed))
    if offset < file.size:
        if tail.proof_of_damage(file, file.size, offset, facts.id_bytes) is not None:
            raise tail.damaged(path, offset, state.next)
        logger.info("%s: %d torn bytes at the end do not count", path, file.size - offset)
    return Found(state, newest, path, rows_end, offset)


def take_up(facts: LogFacts, partition: int, lease: Lease) -> tuple[PartitionState, TailFile, int]:
    """A partition as its new owner goes on with it: state, tail, and the lowest position."""
    low = place.read_low(facts, partition).position
    found = look_up(facts, partition, low)
    state = found.state
    state.forget_below(low)
    name = SegmentName(state.next, int(lease.token))
    header = TailHeader(facts.id, partition, name, facts.schema, facts.time, state, notes=found.notes)
    edge = (
        []
        if found.path is None
        else in_segment.behind_rows(found.path, facts, header, found.rows_end, found.end)
    )
    made = TailFile.make(facts.directory(partition), header, lease, edge)
    made.confirm(state.next, state.committed)
    fp("log.recovered")
    remove_superfluous(facts, partition, lease)
    return state, made, low


def remove_superfluous(facts: LogFacts, partition: int, lease: Lease) -> None:
    """Files that merges replaced, that were trimmed, or that an owner left without a frame."""
    directory = facts.directory(partition)
    listed = sealed_file.list_directory(directory)
    low = place.read_low(facts, partition).position
    used = [each for each in names.lay_out(listed) if each.end is None or each.end > low]
    for name in names.superfluous(listed, used):
        lease.discard(directory / name)


def no_tail(directory: Path) -> DamagedError:
    return DamagedError(f"{directory} has lost its tail.", cure="Restore it from a backup.")
