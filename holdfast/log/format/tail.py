"""Tails: a readable header, then frames. Reading one back tells what is whole, what was torn, and what is damaged.

    holdfast log-tail 1 <log> <first position>-<token> <size> <crc>\\n
    <JSON: schema, and how things stood at the first position; spaces up to a multiple of 8>
    frames

A frame that is not whole is *torn* if nothing proves that it had been durable: the writer died while writing, nobody had
its acknowledgement, and it does not count. It is *damaged* if a later frame says that all up to behind it was durable.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.log.format import frame as frames
from holdfast.log.format.frame import ALIGN, HEAD_BYTES_MAX, Frame
from holdfast.log.format.names import TAIL, SegmentName
from holdfast.log.format.note import NewestNotes
from holdfast.log.machines.partition_state import PartitionState
from holdfast.store import sealed_file

KIND = "log-tail"
FIRST_READ = 1 << 16
"""A header is rarely longer."""
HEADER_LINE_MAX = sealed_file.HEADER_LIMIT
HEADER_BYTES_MAX = 64 << 20
"""More than any schema with the names of all writers takes: a header is read whole."""

ReadAt = Callable[[int, int], memoryview]
"""(offset, length) → that many bytes, fewer at the end of the file."""


@dataclass(frozen=True, slots=True)
class TailHeader:
    """The beginning of a tail."""

    log: str
    partition: int
    name: SegmentName
    schema: pa.Schema
    time: str | None
    """The column with the time of a row; None: the time of appending."""
    state: PartitionState
    """At the first position."""
    bytes: int = 0
    """Where the first frame begins; 0 before it is written."""
    notes: NewestNotes = field(default_factory=NewestNotes)
    """Before this tail. They are kept here however old they are."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A frame and where it begins in its file."""

    offset: int
    frame: Frame


def encode_header(header: TailHeader) -> bytes:
    data = {
        "partition": header.partition,
        "schema": encode_schema(header.schema),
        "time": header.time,
        "state": header.state.snapshot(),
    }
    if header.notes != NewestNotes():
        data["notes"] = header.notes.encode()
    payload = json.dumps(data, separators=(",", ":")).encode()
    name = _stem(header.name)
    while len(sealed := sealed_file.seal(KIND, header.log, name, payload)) % ALIGN:
        payload += b" "
    return sealed


def decode_header(read: ReadAt, path: object, log: str, name: SegmentName) -> TailHeader:
    """DamagedError if it is not the header that belongs to this name."""
    line = bytes(read(0, HEADER_LINE_MAX)).partition(b"\n")[0]
    fields = line.split(b" ")
    size = int(fields[5]) if len(fields) == 7 and fields[5].isascii() and fields[5].isdigit() else 0
    if size > HEADER_BYTES_MAX:
        raise sealed_file.damaged(str(path), f"tells of a header of {size} bytes")
    whole = bytes(read(0, len(line) + 1 + size))
    payload = sealed_file.unseal(whole, str(path), KIND, log, _stem(name))
    with sealed_file.understood(str(path)):
        data = json.loads(payload)
        return TailHeader(
            log,
            data["partition"],
            name,
            decode_schema(data["schema"]),
            data["time"],
            PartitionState.restored(data["state"]),
            len(whole),
            NewestNotes.decode(data["notes"]) if "notes" in data else NewestNotes(),
        )


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """ValueError if it is none."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"no schema: {error}") from error


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin to read a tail: at a frame whose place and position are known."""

    offset: int
    position: int
    token: int
    partition: int


def start_at(offset: int, position: int, name: SegmentName, partition: int) -> Start:
    return Start(offset, position, name.token, partition)


def first_frame(header: TailHeader) -> Start:
    return Start(header.bytes, header.state.next, header.name.token, header.partition)


def scan(
    read: ReadAt, size: int, at: Start, log: bytes, *, limit: int | None = None, payloads: bool = True
) -> Iterator[Placed]:
    """Whole frames in order. Ends in front of the first one that is not whole: see
    `proof_of_damage`. `limit`: an offset behind which nothing is looked at. `payloads`: whether they are verified too."""
    offset, expected = at.offset, at.position
    end = size if limit is None else min(size, limit)
    while offset < end:
        found = frames.unpack(read(offset, HEAD_BYTES_MAX))
        if found is None or not _belongs(found, log, at.partition, at.token, expected):
            return
        if offset + found.bytes > end or (payloads and not is_whole(read, offset, found)):
            return
        yield Placed(offset, found)
        offset, expected = offset + found.bytes, found.next


def is_whole(read: ReadAt, offset: int, found: Frame) -> bool:
    """Does the payload match its checksum?"""
    payload = read(offset + found.head_bytes, found.payload_bytes)
    return len(payload) == found.payload_bytes and checksum(payload) == found.payload_crc


def payload_of(read: ReadAt, placed: Placed) -> memoryview:
    return read(placed.offset + placed.frame.head_bytes, placed.frame.payload_bytes)


def proof_of_damage(read: ReadAt, size: int, offset: int, log: bytes) -> Placed | None:
    """A frame behind `offset` that says all up to behind `offset` was durable when it was written. None: what is there was
    torn."""
    at = offset
    while at < size:
        chunk = bytes(read(at, FIRST_READ))
        found = chunk.find(frames.MAGIC)
        while found >= 0:
            place = at + found
            frame = frames.unpack(read(place, HEAD_BYTES_MAX)) if place > offset else None
            if frame is not None and frame.log == log and frame.stable > offset:
                return Placed(place, frame)
            found = chunk.find(frames.MAGIC, found + 1)
        at += max(1, len(chunk) - len(frames.MAGIC) + 1)
    return None


def damaged(path: object, offset: int, position: int) -> DamagedError:
    return DamagedError(
        f"{path} is damaged at byte {offset}: the rows from position {position} on are not what was written.",
        cure="Restore the file from a backup, or read on behind it. Nothing was changed.",
    )


def _belongs(found: Frame, log: bytes, partition: int, token: int, expected: int) -> bool:
    return (found.log, found.partition, found.token, found.position) == (log, partition, token, expected)


def _stem(name: SegmentName) -> str:
    return str(name).removesuffix(TAIL)


def summary(header: TailHeader) -> dict[str, Any]:
    """A header for people."""
    return {
        "log": header.log,
        "partition": header.partition,
        "first": header.name.first,
        "token": header.name.token,
        "time": header.time,
        "columns": {column.name: str(column.type) for column in header.schema},
        "state": header.state.snapshot(),
    }
