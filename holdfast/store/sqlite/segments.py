"""Segments inside a SQLite file: chunks in one table, a summary of the whole in another (holdfast/store/chunks.py)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from holdfast.store import chunks, refusals, segment_copy
from holdfast.store.base import SegmentRef
from holdfast.store.sqlite import database
from holdfast.store.sqlite.database import Database

CHUNK_BYTES = 1 << 20


def put(
    connection: sqlite3.Connection, where: str, entry: str, key: str, local: Path, crc: int
) -> SegmentRef:
    """Write a local file as chunks, inside the caller's transaction."""
    size = segment_copy.size_of(local)
    count = -(-size // CHUNK_BYTES)
    summary = chunks.SUMMARY.pack(size, crc, count)
    if not _exists(connection, where, entry, key, summary):
        for number, data in enumerate(segment_copy.pieces(local, crc, CHUNK_BYTES)):
            row = (entry, key, number, chunks.encode(entry, key, number, count, data))
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?)", row)
        database.put(connection, "segments", entry, key, value=summary)
    return SegmentRef(entry, key, size, crc)


def stored(db: Database, ref: SegmentRef) -> Iterator[bytes]:
    """The verified pieces of a segment, all of one moment."""
    sql = "SELECT value FROM chunks WHERE entry = ? AND key = ? AND number = ?"

    def chunk(number: int) -> bytes | None:
        rows = db.rows(sql, ref.entry, ref.key, number)
        return rows[0][0] if rows else None

    with db.reading():
        yield from chunks.read(db.path, ref, db.value("segments", ref.entry, ref.key), chunk)


def _exists(connection: sqlite3.Connection, where: str, entry: str, key: str, summary: bytes) -> bool:
    """True if the very same segment is there. StoreError if the key is taken by anything else."""
    if connection.execute("SELECT 1 FROM pairs WHERE entry = ? AND key = ?", (entry, key)).fetchone():
        raise refusals.is_pair(where)
    sql = "SELECT value FROM segments WHERE entry = ? AND key = ?"
    row = connection.execute(sql, (entry, key)).fetchone()
    if row is not None and row[0] != summary:
        raise refusals.other_bytes(where)
    return row is not None
