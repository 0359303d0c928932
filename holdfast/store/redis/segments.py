"""Segments in Redis: chunks in the fields of an entry's hash, one transaction each, then a summary that makes them one.

    s:<key>            size u64, crc u32, number of chunks u32
    c:<key>:<number>   a chunk, with its header (holdfast/store/chunks.py)

Never more than one chunk of a segment is in memory. A segment without a summary does not exist; its chunks are listed
under its key, so that whoever clears up finds them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.ids import OwnerToken
from holdfast.store import chunks, refusals, segment_copy
from holdfast.store.base import SegmentRef
from holdfast.store.names import check_name
from holdfast.store.redis import catalogue
from holdfast.store.redis.connection import Command, Link
from holdfast.store.redis.transactions import Session
from holdfast.store.redis.url import Address
from holdfast.store.redis.values import CHUNK, PAIR, SEGMENT

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
    size = segment_copy.size_of(local)
    upload = _Upload(session, entry, key, size, crc, -(-size // CHUNK_BYTES))
    if not upload.is_there():
        for number, data in enumerate(segment_copy.pieces(local, crc, CHUNK_BYTES)):
            upload.put_chunk(number, data)
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
        return self._unless_there(lambda _: [])

    def put_chunk(self, number: int, data: bytes) -> None:
        value = chunks.encode(self.entry, self.key, number, self.count, data)
        self._unless_there(lambda _: [("HSET", self._hash, chunk_field(self.key, number), value)])

    def finish(self) -> None:
        """Write the summary, if every chunk is there."""
        fields = [chunk_field(self.key, number) for number in range(self.count)]
        lengths: list[Command] = [("HSTRLEN", self._hash, field) for field in fields]
        self._unless_there(self._summary_command, lengths, watch=[self._hash])

    def _unless_there(
        self,
        make: Callable[[list[Any]], list[Command]],
        reads: Sequence[Command] = (),
        watch: Sequence[str] = (),
    ) -> bool:
        """Perform the commands made from the replies to some reads, unless the very same segment is stored: True."""
        found: list[bool] = []

        def decide(replies: list[Any], again: bool) -> list[Command]:
            entries, pair, summary, *rest = replies
            catalogue.require_entry(self.session, entries, self.entry)
            if pair:
                raise refusals.is_pair(self._place)
            found.append(summary is not None)
            if summary is None:
                return make(rest)
            if self.session.sealer.open(summary, "segment", self.entry, self.key) != self._summary:
                raise refusals.other_bytes(self._place)
            return []

        entries = self.session.layout.entries
        needed: list[Command] = [
            ("GET", entries),
            ("HEXISTS", self._hash, PAIR + self.key),
            ("HGET", self._hash, SEGMENT + self.key),
        ]
        self.session.change(decide, watch=[entries, *watch], reads=[*needed, *reads])
        return found[-1]

    def _summary_command(self, lengths: list[Any]) -> list[Command]:
        if sum(lengths) != self.size + self.count * chunks.HEAD_BYTES:
            raise StoreError(f"chunks of {self._place} were deleted while it was stored.")
        value = self.session.sealer.seal(self._summary, "segment", self.entry, self.key)
        return [("HSET", self._hash, SEGMENT + self.key, value)]

    @property
    def _summary(self) -> bytes:
        return chunks.SUMMARY.pack(self.size, self.crc, self.count)

    @property
    def _hash(self) -> str:
        return self.session.layout.entry(check_name("entry", self.entry))

    @property
    def _place(self) -> str:
        return refusals.key_of(self.session.place, self.entry, self.key)


def stored(session: Session, ref: SegmentRef) -> Iterator[bytes]:
    """The verified pieces of a segment, one chunk at a time."""
    key = session.layout.entry(check_name("entry", ref.entry))
    (value,) = session.link.ask(("HGET", key, SEGMENT + check_name("key", ref.key)))
    summary = None if value is None else session.sealer.open(value, "segment", ref.entry, ref.key)

    def chunk(number: int) -> bytes | None:
        (found,) = session.link.ask(("HGET", key, chunk_field(ref.key, number)))
        return None if found is None else bytes(found)

    return chunks.read(session.place, ref, summary, chunk)


def chunk_field(key: str, number: int) -> str:
    return f"{CHUNK}{key}:{number}"
