"""Segments inside a SQLite file: chunked values, each with a header that says which piece of what it is.

    chunk := magic "HFCH" | version u16 | number u32 | count u32 | size u32 | crc u32 | bytes

All numbers little-endian; the crc covers entry, key, the header's fields and the bytes. A row in `segments` gives
size, checksum and number of chunks of the whole.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
from pathlib import Path

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import StoreError
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef
from holdfast.store.sqlite.database import row_crc

MAGIC = b"HFCH"
VERSION = 1
CHUNK_BYTES = 1 << 20
HEADER = struct.Struct("<4sHIII")
CRC = struct.Struct("<I")
SUMMARY = struct.Struct("<QII")
"""Of a row in `segments`: size, checksum, number of chunks."""


def store(
    connection: sqlite3.Connection, place: str, entry: str, key: str, local: Path, crc: int
) -> SegmentRef:
    """Write a local file as chunks, inside the caller's transaction."""
    fd = sealed_file.open_regular(local)
    if fd is None:
        raise StoreError(f"{local} is to be stored as a segment, but does not exist.")
    try:
        size = os.fstat(fd).st_size
        count = -(-size // CHUNK_BYTES)
        summary = SUMMARY.pack(size, crc, count)
        if _exists(connection, place, entry, key, summary):
            return SegmentRef(entry, key, size, crc)
        found = 0
        for number in range(count):
            data = os.pread(fd, CHUNK_BYTES, number * CHUNK_BYTES)
            found = checksum(data, found)
            row = (entry, key, number, encode(entry, key, number, count, data))
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?)", row)
    finally:
        os.close(fd)
    if found != crc:
        raise StoreError(f"{local} does not have the checksum its writer gave.")
    row_sum = row_crc("segments", entry, key, value=summary)
    connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?)", (entry, key, summary, row_sum))
    return SegmentRef(entry, key, size, crc)


def fetch(connection: sqlite3.Connection, path: Path, ref: SegmentRef, local: Path) -> None:
    """Write a segment's bytes to `local`, verified. Nothing is left there on failure."""
    place = f"holds a segment {ref.entry}/{ref.key} that"
    count = _summary(connection, path, ref)
    staged = local.with_name(f".{local.name}.{secrets.token_hex(4)}")
    crc = size = 0
    try:
        with durable.translate_os_errors(str(local)), open(staged, "xb") as out:
            os.fchmod(out.fileno(), durable.FILE_MODE)
            for number in range(count):
                sql = "SELECT value FROM chunks WHERE entry = ? AND key = ? AND number = ?"
                row = connection.execute(sql, (ref.entry, ref.key, number)).fetchone()
                if row is None:
                    raise sealed_file.damaged(path, f"{place} lacks chunk {number}")
                data = decode(row[0], path, ref.entry, ref.key, number, count)
                crc = checksum(data, crc)
                size += len(data)
                out.write(data)
        if (crc, size) != (ref.crc, ref.size):
            raise sealed_file.damaged(path, f"{place} differs from its reference")
        with durable.translate_os_errors(str(local)):
            os.replace(staged, local)
    finally:
        durable.remove_quietly(staged)


def encode(entry: str, key: str, number: int, count: int, data: bytes) -> bytes:
    """A chunk with its header."""
    head = HEADER.pack(MAGIC, VERSION, number, count, len(data))
    return head + CRC.pack(_crc(entry, key, head, data)) + data


def decode(chunk: bytes, path: Path | str, entry: str, key: str, number: int, count: int) -> bytes:
    """A chunk's bytes, verified."""
    head, data = chunk[: HEADER.size], chunk[HEADER.size + CRC.size :]
    expected = HEADER.pack(MAGIC, VERSION, number, count, len(data)) + CRC.pack(_crc(entry, key, head, data))
    if chunk[: len(expected)] != expected:
        raise sealed_file.damaged(path, f"holds a damaged chunk {number} of {entry}/{key}")
    return data


def _crc(entry: str, key: str, head: bytes, data: bytes) -> int:
    return checksum(data, checksum(head, checksum(f"{entry}\0{key}".encode())))


def _exists(connection: sqlite3.Connection, place: str, entry: str, key: str, summary: bytes) -> bool:
    """True if the very same segment is there. StoreError if the key is taken by anything else."""
    if connection.execute("SELECT 1 FROM pairs WHERE entry = ? AND key = ?", (entry, key)).fetchone():
        raise StoreError(f"{place} holds a pair; a segment cannot replace it.")
    row = connection.execute(
        "SELECT value FROM segments WHERE entry = ? AND key = ?", (entry, key)
    ).fetchone()
    if row is not None and row[0] != summary:
        raise StoreError(f"{place} exists with other bytes; a segment is never overwritten.")
    return row is not None


def _summary(connection: sqlite3.Connection, path: Path, ref: SegmentRef) -> int:
    sql = "SELECT value, crc FROM segments WHERE entry = ? AND key = ?"
    row = connection.execute(sql, (ref.entry, ref.key)).fetchone()
    if row is None:
        raise sealed_file.damaged(path, f"has no segment {ref.entry}/{ref.key}, but an epoch refers to it")
    if len(row[0]) != SUMMARY.size or row_crc("segments", ref.entry, ref.key, value=row[0]) != row[1]:
        raise sealed_file.damaged(path, f"holds a damaged description of segment {ref.entry}/{ref.key}")
    size, crc, count = SUMMARY.unpack(row[0])
    if (size, crc) != (ref.size, ref.crc):
        raise sealed_file.damaged(
            path, f"holds another segment {ref.entry}/{ref.key} than its reference says"
        )
    return int(count)
