"""Bytes of a file by offset, read ahead in chunks. Files are not mapped into memory: one that shrinks would end the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from holdfast.store import sealed_file

CHUNK = 1 << 20


class FileBytes:
    """An open file. `limit` is an offset behind which nothing is read, not even ahead: bytes there may still change."""

    def __init__(self, path: Path, limit: int | None = None) -> None:
        fd = sealed_file.open_regular(path)
        if fd is None:
            raise FileNotFoundError(str(path))
        self.path = path
        self.limit = limit
        self._fd = fd
        self._start = 0
        self._chunk = memoryview(b"")

    @property
    def size(self) -> int:
        size = os.fstat(self._fd).st_size
        return size if self.limit is None else min(size, self.limit)

    def __call__(self, offset: int, length: int) -> memoryview:
        if self.limit is not None:
            length = max(0, min(length, self.limit - offset))
        begin = offset - self._start
        if begin < 0 or begin + length > len(self._chunk):
            ahead = max(length, CHUNK)
            if self.limit is not None:
                ahead = min(ahead, self.limit - offset)
            try:
                self._chunk = memoryview(_read(self._fd, offset, ahead))
            except OSError as error:
                raise sealed_file.reading_failed(self.path, error) from error
            self._start, begin = offset, 0
        return self._chunk[begin : begin + length]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else who asks has it meanwhile. Let go when the file is closed, too."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def settle(self) -> None:
        """Make what others wrote durable, and forget what is cached of it: a read then tells what the disk has."""
        os.fsync(self._fd)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self._chunk = memoryview(b"")

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> FileBytes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read(fd: int, offset: int, length: int) -> bytes:
    pieces: list[bytes] = []
    while length > 0 and (piece := os.pread(fd, length, offset)):
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
