"""What a frame carries, ready to be written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.durable import checksum
from holdfast.errors import InputError
from holdfast.log.format import frame as frames
from holdfast.log.format.frame import NO_TIME, Kind

_NOTHING = pa.py_buffer(b"")


@dataclass(frozen=True, slots=True)
class Body:
    """A payload: a note with its length, or nothing, and rows or none."""

    head: bytes
    rows: pa.Buffer
    crc: int
    t_min: int
    t_max: int
    wall: int

    @property
    def size(self) -> int:
        return len(self.head) + int(self.rows.size)


def control(wall: int) -> Body:
    """Of a frame that says all in its header."""
    return Body(b"", _NOTHING, 0, NO_TIME, NO_TIME, wall)


def body_of(
    rows: pa.RecordBatch | None, note: bytes | None, bounds: tuple[int, int], wall: int
) -> tuple[Kind, Body]:
    """Rows, a note, or both. InputError: too large."""
    message = _NOTHING if rows is None else rows.serialize()
    if message.size > frames.PAYLOAD_BYTES_MAX - frames.NOTE_BYTES_MAX:
        raise InputError(
            f"an append of {message.size} bytes is too large.", cure="Append at most 1 GB at once."
        )
    if note is None:
        return Kind.ROWS, Body(b"", message, checksum(memoryview(message)), *bounds, wall=wall)
    if len(note) > frames.NOTE_BYTES_MAX:
        raise InputError(
            f"a note of {len(note)} bytes is too large.", cure=f"Write at most {frames.NOTE_BYTES_MAX >> 20} MiB at once."
        )  # fmt: skip
    head = frames.note_head(note)
    return Kind.NOTE, Body(head, message, checksum(memoryview(message), checksum(head)), *bounds, wall=wall)
