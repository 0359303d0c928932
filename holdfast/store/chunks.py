"""Segments as chunked values, each with a header that says which piece of what it is. For SQLite and Redis.

    chunk   := magic "HFCH" | version u16 | number u32 | count u32 | size u32 | crc u32 | bytes
    summary := size u64 | crc u32 | count u32        of the whole segment

All numbers little-endian; a chunk's crc covers entry, key, the header's fields and the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.durable import checksum
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef
from holdfast.store.names import named_crc

MAGIC = b"HFCH"
VERSION = 1
HEADER = struct.Struct("<4sHIII")
CRC = struct.Struct("<I")
HEAD_BYTES = HEADER.size + CRC.size
SUMMARY = struct.Struct("<QII")


def encode(entry: str, key: str, number: int, count: int, data: bytes) -> bytes:
    return _head(entry, key, number, count, data) + data


def decode(chunk: bytes, place: Path | str, entry: str, key: str, number: int, count: int) -> bytes:
    data = chunk[HEAD_BYTES:]
    if chunk[:HEAD_BYTES] != _head(entry, key, number, count, data):
        raise sealed_file.damaged(place, f"holds a damaged chunk {number} of {entry}/{key}")
    return data


def _head(entry: str, key: str, number: int, count: int, data: bytes) -> bytes:
    head = HEADER.pack(MAGIC, VERSION, number, count, len(data))
    return head + CRC.pack(checksum(data, named_crc(entry, key, value=head)))


def read(
    place: Path | str, ref: SegmentRef, summary: bytes | None, chunk: Callable[[int], bytes | None]
) -> Iterator[bytes]:
    """The verified pieces of a segment, from its summary and a way to get each chunk."""
    name = f"segment {ref.entry}/{ref.key}"
    if summary is None:
        raise sealed_file.damaged(place, f"has no {name}, but an epoch refers to it")
    if len(summary) != SUMMARY.size:
        raise sealed_file.damaged(place, f"holds a damaged description of {name}")
    size, crc, count = SUMMARY.unpack(summary)
    if (size, crc) != (ref.size, ref.crc):
        raise sealed_file.damaged(place, f"holds another {name} than its reference says")
    for number in range(count):
        value = chunk(number)
        if value is None:
            raise sealed_file.damaged(place, f"holds a {name} that lacks chunk {number}")
        yield decode(value, place, ref.entry, ref.key, number, count)
