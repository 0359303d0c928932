"""What the log of a persisted stream has beside its rows: where the sources are behind them, and how event time goes on at them.

    holdfast sources 1\\n | {source: its snapshot}
    holdfast stream 1\\n  | {sources: the same or null, rises: [[row, watermark], …], clock}

A row of `rises` is a number within the rows that the note came with, or the number of all of them: behind the last one. The
clock is that of the end where rows enter, behind these rows. Where an aggregate has its checkpoints in the log, records of windows
tell its watermark before and behind their step. Page: docs/formats/log.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import DamagedError
from holdfast.ids import OperatorName
from holdfast.log.format.note import Note
from holdfast.state.eventual import records
from holdfast.state.values import codec

SOURCES = b"holdfast sources 1\n"
STREAM = b"holdfast stream 1\n"

Rise = tuple[int, int]
"""A row, and the watermark from it on."""


@dataclass(frozen=True, slots=True)
class StreamNote:
    """A note of a persisted stream."""

    sources: Mapping[OperatorName, Any] | None = None
    rises: Sequence[Rise] = ()
    clock: Mapping[str, Any] | None = None
    """None: nobody goes by event time behind the log."""

    def encode(self) -> bytes:
        sources = None if self.sources is None else dict(self.sources)
        if self.clock is None:
            return SOURCES + codec.encode(sources or {})
        rises = [list(rise) for rise in self.rises]
        return STREAM + codec.encode({"sources": sources, "rises": rises, "clock": dict(self.clock)})

    @property
    def watermark(self) -> int | None:
        """Behind all rows up to it; None: it does not tell."""
        if self.clock is not None:
            return int(self.clock["watermark"])
        return self.rises[-1][1] if self.rises else None

    @staticmethod
    def of(note: Note) -> StreamNote | None:
        """None: it is a note of somebody else. DamagedError: it begins like one."""
        try:
            windows = records.decode(note.payload)
            if windows is None:
                return _stream_note(note.payload)
            return None if windows.note is None else _of_windows(windows.note, note.rows)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise DamagedError(
                f"a note of a persisted stream holds what holdfast never writes ({type(error).__name__}: {error}).",
                cure="Restore the log from a backup.",
            ) from error


def _stream_note(payload: bytes) -> StreamNote | None:
    magic = payload[: payload.find(b"\n") + 1]
    if magic not in (SOURCES, STREAM):
        return None
    found = codec.decode(payload[len(magic) :])
    if magic == SOURCES:
        return StreamNote(dict(found))
    rises = tuple((int(row), int(time)) for row, time in found["rises"])
    int(found["clock"]["watermark"])
    return StreamNote(found["sources"], rises, dict(found["clock"]))


def _of_windows(note: records.Note, rows: int) -> StreamNote:
    places = ((0, note.before.meta), (rows, note.after.meta))
    marks = ((row, (meta or {}).get("watermark")) for row, meta in places)
    return StreamNote(rises=tuple((row, int(mark)) for row, mark in marks if mark is not None))
