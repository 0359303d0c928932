"""The tail as its owner writes it: made under its name at once, grown by frames, cut back when a write fails.

Beside it lies a small file, `.live`, in which the owner tells readers of other processes how far the tail is acknowledged. It
is written without fsync and off the way of an append: if it is lost, readers see less until the next owner comes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.log.format import tail
from holdfast.log.format.names import SegmentName, live_name
from holdfast.log.format.note import Carried
from holdfast.log.format.tail import TailHeader
from holdfast.store.files.lease import Lease

_LIVE = struct.Struct("<4sIQQQQ")
_LIVE_MAGIC = b"HFLL"
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Confirmed:
    """How far a tail is acknowledged: bytes, rows, and rows that count for good."""

    token: int
    offset: int
    next: int
    committed: int


class TailFile:
    """An open tail. One thread writes."""

    def __init__(self, path: Path, header: TailHeader, fd: int, live_fd: int) -> None:
        self.path = path
        self.header = header
        self.end = header.bytes
        """Behind the last durable frame."""
        self._fd = fd
        self._live_fd = live_fd

    @staticmethod
    def make(directory: Path, header: TailHeader, lease: Lease, edge: Sequence[Carried] = ()) -> TailFile:
        """A new tail, durable with its name and the notes at its `edge`, which it takes over from the one before.
        FileNotFoundError: a newer owner took this one's private directory."""
        data = tail.encode_header(header)
        begin = len(data)
        data += b"".join(each.placed_in(begin) for each in edge)
        path = directory / str(header.name)
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            durable.write_file(path, data, temporary=lease.temporary())
            fp("log.tail.made")
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | flags)
            live_path = directory / live_name(header.name)
            live = os.open(live_path, os.O_WRONLY | os.O_CREAT | flags, durable.FILE_MODE)
        except (OSError, StoreError):
            # With a tail of this name the one before would end here: it must not stay if it is not to be used.
            lease.discard(path)
            durable.fsync_directory(directory)
            raise
        made = TailFile(path, replace(header, bytes=begin), fd, live)
        made.end = len(data)
        return made

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        durable.write_many(self._fd, buffers)

    def sync(self) -> None:
        durable.sync_data(self._fd)

    def cut(self, private: Path) -> bool:
        """Take back what was written behind the last durable frame. False: a newer owner has come, and decides what counts."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # not while a newer owner reads this tail
        try:
            if not os.path.isdir(private):
                return False
            os.ftruncate(self._fd, self.end)
            return True
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def confirm(self, next_position: int, committed: int) -> None:
        fields = _LIVE.pack(_LIVE_MAGIC, 0, self.header.name.token, self.end, next_position, committed)
        os.pwrite(self._live_fd, fields + _CRC.pack(checksum(fields)), 0)

    def forget_live(self) -> None:
        """The tail is closed and another one follows it: names say how far it counts."""
        durable.remove_quietly(self.path.with_name(live_name(self.header.name)))

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._live_fd)


def read_confirmed(directory: Path, name: SegmentName) -> Confirmed | None:
    """None: the owner has acknowledged nothing yet, or its word is lost."""
    try:
        data = (directory / live_name(name)).read_bytes()
    except OSError:
        return None
    if len(data) != _LIVE.size + _CRC.size or _CRC.unpack_from(data, _LIVE.size)[0] != checksum(
        data[: _LIVE.size]
    ):
        return None
    magic, _, token, offset, next_position, committed = _LIVE.unpack_from(data)
    if magic != _LIVE_MAGIC or token != name.token:
        return None
    return Confirmed(token, offset, next_position, committed)
