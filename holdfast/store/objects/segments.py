"""Segments in an object store: one object each, created once, written by the driver or by executors.

    segments/<entry>/<key>    the bytes of the segment

A segment is there as soon as its object is; an epoch refers to it by size and checksum. Who writes looks at the log
before and after: an owner that was replaced hears of it, and what it may have left behind is referred to by nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from holdfast import durable
from holdfast.failpoints import fp
from holdfast.store import refusals, sealed_file, segment_copy
from holdfast.store.base import SegmentRef
from holdfast.store.names import check_name
from holdfast.store.objects.bucket import PIECE_BYTES, Bucket
from holdfast.store.objects.contents_log import Log
from holdfast.store.objects.url import Place


@dataclass(frozen=True)
class SegmentWriter:
    """Stores segments as the owner that made it, from any process that reaches the place. Picklable."""

    place: Place
    job: str
    token: int

    def __call__(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return put(_log(self, os.getpid()), self.token, check_name("entry", entry), key, Path(local), crc)


@lru_cache(maxsize=4)
def _log(writer: SegmentWriter, pid: int) -> Log:
    """One per process: a forked one makes its own."""
    return Log(Bucket(writer.place), writer.job)


def name_of(entry: str, key: str) -> str:
    return f"segments/{entry}/{key}"


def put(log: Log, token: int, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
    """Store a local file. The same bytes again are fine; other bytes under a key that exists are refused."""
    check_name("key", key)
    url = log.bucket.url
    with durable.translate_os_errors(url):
        fp("ckpt.op.put")
    log.check_owner(token)
    state = log.seen()
    if entry not in state.entries:
        raise refusals.no_entry(url, entry)
    where = refusals.key_of(url, entry, key)
    if key in state.entries[entry]:
        raise refusals.is_pair(where)
    size = sum(map(len, segment_copy.pieces(local, crc, PIECE_BYTES)))
    if not log.bucket.create_file(name_of(entry, key), local, crc, size):
        raise refusals.other_bytes(where)
    log.check_owner(token)
    fp("ckpt.op.put_done")
    return SegmentRef(entry, key, size, crc)


def stored(bucket: Bucket, ref: SegmentRef) -> Iterator[bytes]:
    name = name_of(check_name("entry", ref.entry), check_name("key", ref.key))
    for piece in bucket.pieces(name):
        if piece is None:
            raise sealed_file.damaged(f"{bucket.url}/{name}", "is missing, but an epoch refers to it")
        yield piece
