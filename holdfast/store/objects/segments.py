"""Segments in an object store: one object each, created once, written by the driver or by executors.

    segments/<entry>/<key>    the bytes of the segment

A segment is there as soon as its object is; an epoch refers to it by size and checksum. Who writes looks at the log
before and after: an owner that was replaced hears of it, and what it may have left behind is referred to by nobody.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from holdfast import durable
from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef
from holdfast.store.names import check_name
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.state import Log
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
        raise StoreError(f"{url} has no entry {entry!r}.", cure="Create the entry first.")
    if key in state.entries[entry]:
        raise StoreError(f"{url} ({entry}/{key}) holds a pair; a segment cannot replace it.")
    size = _checked_size(local, crc)
    if not log.bucket.create_file(name_of(entry, key), local, crc, size):
        raise StoreError(f"{url} ({entry}/{key}) exists with other bytes; a segment is never overwritten.")
    log.check_owner(token)
    fp("ckpt.op.put_done")
    return SegmentRef(entry, key, size, crc)


def fetch(bucket: Bucket, ref: SegmentRef, local: Path) -> None:
    """Write a segment's bytes to `local`, verified. Nothing is left there on failure."""
    name = name_of(check_name("entry", ref.entry), check_name("key", ref.key))
    staged = local.with_name(f".{local.name}.{secrets.token_hex(4)}")
    try:
        found = bucket.fetch(name, staged)
        if found is None:
            raise sealed_file.damaged(f"{bucket.url}/{name}", "is missing, but an epoch refers to it")
        if found != (ref.crc, ref.size):
            raise sealed_file.damaged(
                f"{bucket.url}/{name}", "has a size or checksum that differ from its reference"
            )
        with durable.translate_os_errors(str(local)):
            os.replace(staged, local)
    finally:
        durable.remove_quietly(staged)


def _checked_size(local: Path, crc: int) -> int:
    fd = sealed_file.open_regular(local)
    if fd is None:
        raise StoreError(f"{local} is to be stored as a segment, but does not exist.")
    os.close(fd)
    found, size = durable.checksum_file(local)
    if found != crc:
        raise StoreError(f"{local} does not have the checksum its writer gave.")
    return size
