"""Frames: what a tail is made of. A frame says of itself to which log, partition and place it belongs, and proves it.

    header (HEADER_BYTES) | writer's name | zeros up to a multiple of 8 | payload

The payload of rows is one Arrow IPC record batch message; the schema stands at the beginning of the tail. A note stands in front
of the rows it belongs to, in one payload with one checksum: neither is ever there without the other. The header's checksum covers the header and the name, and the payload's checksum is part of the header. Page: docs/formats/log.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from holdfast.durable import checksum

MAGIC = b"HFLB"
VERSION = 1
ALIGN = 8
NO_TIME = -(1 << 63)
"""A time that nothing is before: of frames without rows, or whose rows have no time."""
NO_EPOCH = -1
"""Rows of no epoch: they count as soon as they are acknowledged."""
NAME_BYTES_MAX = 100
PAYLOAD_BYTES_MAX = 1 << 30
NOTE_BYTES_MAX = 16 << 20

_HEADER = struct.Struct("<4sBBHII16sQQQQqqqqqHHII")
HEADER_BYTES = _HEADER.size
_CRC = struct.Struct("<I")
_NOTE = struct.Struct("<II")


class Kind(IntEnum):
    """What a frame is for."""

    ROWS = 1
    SEAL = 2
    """Every row of this epoch and of those before is there for good."""
    WITHDRAW = 3
    """Rows of epochs above this one that no seal covers were never meant to be."""
    END = 4
    """The tail was closed in order: nothing is missing behind this frame."""
    NOTE = 5
    """Bytes that the writer wants to find again, with rows or alone. Who reads rows does not see them."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame without its payload."""

    kind: Kind
    log: bytes
    partition: int
    position: int
    """Of the first row; of a frame without rows the place of the next one."""
    rows: int
    token: int
    """Of the owner that wrote it."""
    writer: str
    sequence: int
    stable: int
    """All of the tail before this offset was durable when the frame was written."""
    epoch: int
    t_min: int
    t_max: int
    t_run_max: int
    """The greatest time up to here; µs since 1970."""
    wall: int
    """When it was appended, by the writer's clock; µs since 1970."""
    payload_bytes: int
    payload_crc: int

    @property
    def next(self) -> int:
        return self.position + self.rows

    @property
    def head_bytes(self) -> int:
        """Where the payload begins."""
        return _padded(HEADER_BYTES + len(self.writer.encode()))

    @property
    def bytes(self) -> int:
        return self.head_bytes + self.payload_bytes


def pack(frame: Frame) -> bytes:
    """All of a frame before its payload."""
    name = frame.writer.encode()
    fields = _HEADER.pack(
        MAGIC, VERSION, frame.kind, frame.partition, frame.payload_bytes, frame.rows, frame.log,
        frame.position, frame.token, frame.sequence, frame.stable,
        frame.epoch, frame.t_min, frame.t_max, frame.t_run_max, frame.wall,
        len(name), 0, frame.payload_crc, 0,
    )  # fmt: skip
    crc = checksum(name, checksum(fields[: -_CRC.size]))
    padding = bytes(_padded(HEADER_BYTES + len(name)) - HEADER_BYTES - len(name))
    return b"".join((fields[: -_CRC.size], _CRC.pack(crc), name, padding))


def unpack(data: memoryview) -> Frame | None:
    """The frame that begins with `data`. None: too few bytes, or nobody wrote these."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        return None
    (
        _, version, kind, partition, payload_bytes, rows, log,
        position, token, sequence, stable, epoch, t_min, t_max, t_run_max, wall,
        name_bytes, _, payload_crc, crc,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    end = HEADER_BYTES + name_bytes
    if version != VERSION or name_bytes > NAME_BYTES_MAX or len(data) < end:
        return None
    if checksum(data[HEADER_BYTES:end], checksum(data[: HEADER_BYTES - _CRC.size])) != crc:
        return None
    if kind not in _KINDS:
        return None
    writer = bytes(data[HEADER_BYTES:end]).decode("utf-8", "replace")
    return Frame(
        Kind(kind), log, partition, position, rows, token, writer, sequence, stable, epoch,
        t_min, t_max, t_run_max, wall, payload_bytes, payload_crc,
    )  # fmt: skip


def note_head(note: bytes) -> bytes:
    """What stands in the payload of a note in front of its rows."""
    size = _NOTE.size + len(note)
    return _NOTE.pack(len(note), 0) + note + bytes(_padded(size) - size)


def note_of(payload: memoryview) -> bytes:
    """The note in a payload that is whole."""
    (size, _) = _NOTE.unpack_from(payload)
    return bytes(payload[_NOTE.size : _NOTE.size + size])


def rows_of(frame: Frame, payload: memoryview) -> memoryview:
    """The record batch message in a payload that is whole."""
    if frame.kind is not Kind.NOTE:
        return payload
    (size, _) = _NOTE.unpack_from(payload)
    return payload[_padded(_NOTE.size + size) :]


HEAD_BYTES_MAX = HEADER_BYTES + NAME_BYTES_MAX + ALIGN
_KINDS = frozenset(Kind)


def _padded(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN
