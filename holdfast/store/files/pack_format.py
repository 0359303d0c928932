"""Pack files: the small pairs of one `put`, in one file and one fsync. Page: docs/formats/store-files.md.

    pack   := header record*
    header := magic "HFPK" | version u16 | flags u16 | name length u16 | count u32 | name | crc u32
    record := key length u16 | flags u16 | value length u32 | crc u32 | key | value

All numbers little-endian. The header's crc covers the header before it; `name` is `<job>/<entry>/<file name>`, so
that a pack cannot stand in for another. A record's crc covers its other fields, key and value. The file ends with
the last record. Pure: bytes in, records out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.durable import checksum
from holdfast.store import sealed_file

MAGIC = b"HFPK"
VERSION = 1
BASE = 1
"""Header flag: packs with a lower number are void."""
GONE = 1
"""Record flag: the key is deleted."""

HEADER = struct.Struct("<4sHHHI")
RECORD = struct.Struct("<HHII")
CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Record:
    """A record and where it lies in its pack."""

    key: str
    gone: bool
    offset: int
    size: int
    """Bytes of the whole record."""


def encode(name: str, pairs: Iterable[tuple[str, bytes | None]], *, base: bool) -> bytes:
    """A pack's bytes. A value of None deletes the key."""
    records = [_encode_record(key.encode(), value) for key, value in pairs]
    label = name.encode()
    head = HEADER.pack(MAGIC, VERSION, BASE if base else 0, len(label), len(records)) + label
    return b"".join([head, CRC.pack(checksum(head)), *records])


def decode(data: bytes, path: Path, name: str, *, base: bool) -> list[Record]:
    """Every record of a pack, each verified. DamagedError naming `path`."""
    offset, count = _check_header(data, path, name, base)
    records = []
    for _ in range(count):
        record, _ = decode_record(data, offset, path)
        records.append(record)
        offset += record.size
    if offset != len(data):
        raise sealed_file.damaged(path, f"has {len(data) - offset} bytes after its last record")
    return records


def decode_record(data: bytes, offset: int, path: Path) -> tuple[Record, bytes]:
    """The record at `offset` and its value, verified."""
    start = offset + RECORD.size
    if start > len(data):
        raise sealed_file.damaged(path, "ends inside a record")
    key_size, flags, value_size, crc = RECORD.unpack_from(data, offset)
    end = start + key_size + value_size
    if end > len(data):
        raise sealed_file.damaged(path, "ends inside a record")
    fields = memoryview(data)[offset : offset + RECORD.size - CRC.size]
    if checksum(memoryview(data)[start:end], checksum(fields)) != crc:
        raise sealed_file.damaged(path, f"does not match its checksum at byte {offset}")
    with sealed_file.understood(path):
        key = data[start : start + key_size].decode()
    return Record(key, bool(flags & GONE), offset, end - offset), data[start + key_size : end]


def _encode_record(key: bytes, value: bytes | None) -> bytes:
    body = key + (value or b"")
    fields = RECORD.pack(len(key), GONE if value is None else 0, len(value or b""), 0)[: -CRC.size]
    return fields + CRC.pack(checksum(body, checksum(fields))) + body


def _check_header(data: bytes, path: Path, name: str, base: bool) -> tuple[int, int]:
    if len(data) < HEADER.size:
        raise sealed_file.damaged(path, "is shorter than its header")
    magic, version, flags, name_size, count = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise sealed_file.damaged(path, "is not a pack")
    sealed_file.refuse_newer(path, str(version))
    end = HEADER.size + name_size
    if len(data) < end + CRC.size or CRC.unpack_from(data, end)[0] != checksum(data[:end]):
        raise sealed_file.damaged(path, "has a header that does not match its checksum")
    if data[HEADER.size : end] != name.encode() or bool(flags & BASE) is not base:
        raise sealed_file.damaged(path, f"is the pack {data[HEADER.size : end].decode()!r} in a wrong place")
    return end + CRC.size, count
