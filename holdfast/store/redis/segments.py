"""Segments in Redis: chunks in the fields of an entry's hash, one transaction each, then a summary that makes them one.

    s:<key>            size u64, crc u32, number of chunks u32
    c:<key>:<number>   a chunk, its header as in the SQLite store (holdfast/store/sqlite/chunks.py)

Never more than one chunk of a segment is in memory. A segment without a summary does not exist; its chunks are listed
under its key, so that whoever clears up finds them.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.ids import OwnerToken
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef
from holdfast.store.names import check_name
from holdfast.store.redis.link import Command, Link
from holdfast.store.redis.session import Session
from holdfast.store.redis.url import Address
from holdfast.store.redis.values import CHUNK, PAIR, SEGMENT
from holdfast.store.sqlite import chunks

CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class SegmentWriter:
    """Stores segments as the owner that made it, from any process that reaches the server. Picklable."""

    address: Address
    identity: bytes
    job: str
    token: int

    def __call__(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return put(_session(self, os.getpid()), entry, key, local, crc)


@lru_cache(maxsize=4)
def _session(writer: SegmentWriter, pid: int) -> Session:
    """One per process: a forked one makes its own."""
    session = Session(Link(writer.address), writer.identity, writer.job)
    session.token = OwnerToken(writer.token)
    return session


def put(session: Session, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
    """Store a local file. The same bytes again are fine; other bytes under a key that exists are refused."""
    check_name("key", key)
    with durable.translate_os_errors(session.place):
        fp("ckpt.op.put")
    fd = sealed_file.open_regular(Path(local))
    if fd is None:
        raise StoreError(f"{local} is to be stored as a segment, but does not exist.")
    try:
        size = os.fstat(fd).st_size
        upload = _Upload(session, entry, key, size, crc, -(-size // CHUNK_BYTES))
        if upload.is_there():
            return SegmentRef(entry, key, size, crc)
        found = 0
        for number in range(upload.count):
            data = os.pread(fd, CHUNK_BYTES, number * CHUNK_BYTES)
            found = checksum(data, found)
            upload.put_chunk(number, data)
    finally:
        os.close(fd)
    if found != crc:
        raise StoreError(f"{local} does not have the checksum its writer gave.")
    upload.finish()
    fp("ckpt.op.put_done")
    return SegmentRef(entry, key, size, crc)


@dataclass(frozen=True)
class _Upload:
    session: Session
    entry: str
    key: str
    size: int
    crc: int
    count: int

    def is_there(self) -> bool:
        """True if the very same segment is stored. Also refuses what could never be stored, before any byte goes."""
        found: list[bool] = []

        def decide(replies: list[Any], again: bool) -> list[Command]:
            found.append(self._exists(replies))
            return []

        self.session.change(decide, reads=self._needs())
        return found[-1]

    def put_chunk(self, number: int, data: bytes) -> None:
        value = chunks.encode(self.entry, self.key, number, self.count, data)
        write: Command = ("HSET", self._hash, chunk_field(self.key, number), value)

        def decide(replies: list[Any], again: bool) -> list[Command]:
            return [] if self._exists(replies) else [write]

        self.session.change(decide, watch=[self.session.layout.entries], reads=self._needs())

    def finish(self) -> None:
        """Write the summary, if every chunk is there."""
        fields = [chunk_field(self.key, number) for number in range(self.count)]
        lengths: list[Command] = [("HSTRLEN", self._hash, field) for field in fields]

        def decide(replies: list[Any], again: bool) -> list[Command]:
            return [] if self._exists(replies) else self._summary_command(replies[3:])

        watch = [self.session.layout.entries, self._hash]
        self.session.change(decide, watch=watch, reads=[*self._needs(), *lengths])

    def _summary_command(self, lengths: list[Any]) -> list[Command]:
        head = chunks.HEADER.size + chunks.CRC.size
        if sum(lengths) != self.size + self.count * head:
            raise StoreError(f"chunks of {self._place} were deleted while it was stored.")
        summary = chunks.SUMMARY.pack(self.size, self.crc, self.count)
        value = self.session.sealer.seal(summary, "segment", self.entry, self.key)
        return [("HSET", self._hash, SEGMENT + self.key, value)]

    def _exists(self, replies: list[Any]) -> bool:
        entries, pair, summary = replies[:3]
        require_entry(self.session, entries, self.entry)
        if pair:
            raise StoreError(f"{self._place} holds a pair; a segment cannot replace it.")
        if summary is None:
            return False
        found = self.session.sealer.open(summary, "segment", self.entry, self.key)
        if found != chunks.SUMMARY.pack(self.size, self.crc, self.count):
            raise StoreError(f"{self._place} exists with other bytes; a segment is never overwritten.")
        return True

    def _needs(self) -> list[Command]:
        return [
            ("GET", self.session.layout.entries),
            ("HEXISTS", self._hash, PAIR + self.key),
            ("HGET", self._hash, SEGMENT + self.key),
        ]

    @property
    def _hash(self) -> str:
        return self.session.layout.entry(check_name("entry", self.entry))

    @property
    def _place(self) -> str:
        return f"{self.session.place} ({self.entry}/{self.key})"


def fetch(session: Session, ref: SegmentRef, local: Path) -> None:
    """Write a segment's bytes to `local`, verified, chunk by chunk. Nothing is left there on failure."""
    key = session.layout.entry(check_name("entry", ref.entry))
    what = f"holds a segment {ref.entry}/{ref.key} that"
    count = _count(session, key, ref)
    staged = local.with_name(f".{local.name}.{secrets.token_hex(4)}")
    crc = size = 0
    try:
        with durable.translate_os_errors(str(local)), open(staged, "xb") as out:
            os.fchmod(out.fileno(), durable.FILE_MODE)
            for number in range(count):
                (value,) = session.link.ask(("HGET", key, chunk_field(ref.key, number)))
                if value is None:
                    raise session.sealer.damaged(f"{what} lacks chunk {number}")
                data = chunks.decode(value, session.place, ref.entry, ref.key, number, count)
                crc = checksum(data, crc)
                size += len(data)
                out.write(data)
        if (crc, size) != (ref.crc, ref.size):
            raise session.sealer.damaged(f"{what} differs from its reference")
        with durable.translate_os_errors(str(local)):
            os.replace(staged, local)
    finally:
        durable.remove_quietly(staged)


def _count(session: Session, key: str, ref: SegmentRef) -> int:
    """The number of chunks, if the summary is what the reference says."""
    (value,) = session.link.ask(("HGET", key, SEGMENT + check_name("key", ref.key)))
    name = f"segment {ref.entry}/{ref.key}"
    if value is None:
        raise session.sealer.damaged(f"has no {name}, but an epoch refers to it")
    found = session.sealer.open(value, "segment", ref.entry, ref.key)
    size, crc, count = chunks.SUMMARY.unpack(found)
    if (size, crc) != (ref.size, ref.crc):
        raise session.sealer.damaged(f"holds another {name} than its reference says")
    return int(count)


def require_entry(session: Session, value: Any, entry: str) -> None:
    """StoreError unless the catalogue of entries has this one."""
    if entry not in session.sealer.open_json(value, "catalogue", "entries"):
        raise StoreError(f"{session.place} has no entry {entry!r}.", cure="Create the entry first.")


def chunk_field(key: str, number: int) -> str:
    return f"{CHUNK}{key}:{number}"
