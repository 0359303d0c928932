"""Notes: bytes that a writer wants to find again, in the order in which it wrote them.

A note lies in the log like rows, alone or in one frame with some, and goes the way of rows: into Parquet segments (beside them,
see `notes_file`), and away when what lies before is trimmed. The newest note of each writer stays for ever: it is carried along
in the beginning of every tail.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from holdfast.log.format import frame as frames
from holdfast.log.format.frame import NO_EPOCH, Frame, Kind
from holdfast.log.machines.partition_state import Ranges


class Note(NamedTuple):
    """A note as its reader gets it."""

    position: int
    """Of the first row it came with; of a note alone the place of the next row."""
    sequence: int
    payload: bytes
    rows: int = 0
    """How many it came with."""

    def touches(self, start: int, end: int) -> bool:
        """Whether it came with rows of [start, end), or stands alone from `start` to `end`."""
        if self.rows:
            return self.position < end and start < self.position + self.rows
        return start <= self.position <= end

    @staticmethod
    def of(frame: Frame, payload: memoryview) -> Note:
        return Note(frame.position, frame.sequence, frames.note_of(payload), frame.rows)

    def encode(self) -> list[Any]:
        return [self.position, self.sequence, base64.b64encode(self.payload).decode(), self.rows]

    @staticmethod
    def decode(data: Sequence[Any]) -> Note:
        return Note(data[0], data[1], base64.b64decode(data[2]), data[3])


@dataclass(slots=True)
class NewestNotes:
    """The newest note of each writer, as the frames so far say."""

    decided: dict[str, Note] = field(default_factory=dict)
    """By writer."""
    open: list[tuple[int, str, Note]] = field(default_factory=list)
    """(epoch, writer, note) of those that came with rows which no seal covers."""

    def apply(self, frame: Frame, payload: memoryview) -> None:
        """`payload` is looked at if the frame is a note."""
        if frame.kind is Kind.NOTE:
            note = Note.of(frame, payload)
            if frame.epoch == NO_EPOCH:
                self.decided[frame.writer] = note
            else:
                self.open.append((frame.epoch, frame.writer, note))
        elif frame.kind is Kind.SEAL and self.open:
            self.decided |= {writer: note for epoch, writer, note in self.open if epoch <= frame.epoch}
            self.open = [each for each in self.open if each[0] > frame.epoch]
        elif frame.kind is Kind.WITHDRAW:
            self.open = [each for each in self.open if each[0] <= frame.epoch]

    def copied(self) -> NewestNotes:
        return NewestNotes(dict(self.decided), list(self.open))

    def encode(self) -> dict[str, Any]:
        return {
            "decided": {writer: note.encode() for writer, note in sorted(self.decided.items())},
            "open": [[epoch, writer, note.encode()] for epoch, writer, note in self.open],
        }

    @staticmethod
    def decode(data: dict[str, Any]) -> NewestNotes:
        decided = {writer: Note.decode(note) for writer, note in data["decided"].items()}
        return NewestNotes(
            decided, [(epoch, writer, Note.decode(note)) for epoch, writer, note in data["open"]]
        )


def is_withdrawn(note: Note, withdrawn: Ranges) -> bool:
    """A note goes with the rows it came with; one alone belongs to no epoch and is never withdrawn."""
    return bool(note.rows) and any(begin <= note.position < behind for begin, behind in withdrawn)


@dataclass(frozen=True, slots=True)
class Carried:
    """A note alone at the end of a tail, as it goes into the next one."""

    frame: Frame
    payload: bytes

    def placed_in(self, begin: int) -> bytes:
        """Its bytes in a tail whose first frame begins there."""
        return frames.pack(replace(self.frame, stable=begin)) + self.payload
