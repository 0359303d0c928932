"""The one module through which durable bytes are written.

Order of a durable file: write to a temporary name in the same directory → fsync the file → rename → fsync the
directory. A file is therefore either absent, the old one, or whole. A failed fsync is never repeated on that file:
the kernel may have dropped the dirty pages, so a second fsync that succeeds would prove nothing.

`NoSpaceError` means the attempt's own files were removed and the caller may go on later; any other failure of the
disk becomes `StoreError`, after which the process must not trust what it wrote. A failure after the rename becomes
`NotDurableError`, whatever its cause: the new file is visible and can no longer be taken back.

Files are 0600 and directories 0700, whatever the umask.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isal import isal_zlib

from holdfast.errors import NoSpaceError, StoreError
from holdfast.failpoints import fp

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

_CHUNK = 1 << 18
"""What is read at once into the same memory: it stays in the processor's cache."""

_BUFFERS_AT_ONCE = min(1024, os.sysconf("SC_IOV_MAX"))


class NotDurableError(StoreError):
    """The file is in place, but nobody knows whether it survives a power cut. The process must stop; the next one
    finds the old file or the new one, both whole."""


def checksum(data: bytes | memoryview, start: int = 0) -> int:
    """CRC-32 of `data`, continuing from `start`. The one checksum of all holdfast formats."""
    return isal_zlib.crc32(data, start)


def checksum_file(path: str | Path) -> tuple[int, int]:
    """(checksum, size) of a file, read in chunks."""
    crc = size = 0
    buffer = memoryview(bytearray(_CHUNK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = checksum(buffer[:count], crc)
            size += count
    return crc, size


class ChecksummedFile:
    """A file as Arrow writes to it: each buffer goes to the disk and into the checksum, not into a copy."""

    closed = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = 0
        self.crc = 0

    def write(self, data: Any) -> int:
        """`data`: bytes, or a buffer of Arrow's."""
        view = memoryview(data)
        write_all(self._fd, view)
        self.crc = checksum(view, self.crc)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None: ...

    def close(self) -> None: ...


@contextmanager
def translate_os_errors(what: str) -> Iterator[None]:
    """Turn OSError of a durable write into holdfast's own errors, cause chained."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise no_space(f"writing {what}") from error
        raise StoreError(
            f"writing {what} failed: {error}.", cure="Check the disk, then start the run again."
        ) from error


def no_space(during: str) -> NoSpaceError:
    return NoSpaceError(
        f"no space left while {during}.",
        cure="Free some space; the run goes on by itself from the last published epoch.",
    )


def tells_of_no_space(error: BaseException) -> bool:
    """Whether an error that came from another process speaks of a full disk. Spark passes on texts, not errors."""
    return any(words in str(error) for words in ("No space left on device", "Disk quota exceeded"))


@contextmanager
def opened(path: str | Path, flags: int) -> Iterator[int]:
    """A descriptor of a file, never of what a link points to; closed behind its use."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        yield fd
    finally:
        os.close(fd)


def fsync_file(path: str | Path) -> None:
    """Make a file's bytes durable, whoever wrote them."""
    with opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


def fsync_directory(path: str | Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Create a private directory (0700) and its missing parents durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    try:
        path.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        if path.is_dir():
            return  # somebody else was faster
        raise
    os.chmod(path, DIRECTORY_MODE)
    fsync_directory(path.parent)


def write_file(path: Path, data: bytes, *, temporary: Path | None = None, failpoints: str = "") -> None:
    """Write `data` to `path` durably and atomically, replacing what was there.

    `temporary` names the file to write first (default: beside `path`). An owner whose temporary directory was
    removed by a newer owner fails here and cannot publish: that is how fencing works on plain files.
    `failpoints` is the prefix of the four steps' failpoints, e.g. "ckpt.manifest"; empty for none.
    """
    staged = temporary or path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with translate_os_errors(str(path)):
        try:
            inode = write_staged(staged, data, failpoints=failpoints)
            _step(failpoints, "fsynced")
            _rename_and_look(staged, path, inode, data)
        except BaseException:
            remove_quietly(staged)
            raise
    settle_name(path, failpoints=failpoints)


def write_staged(staged: Path, data: bytes, *, failpoints: str = "") -> int:
    """Write a temporary file and fsync it; returns its inode number. On OSError the caller removes the file."""
    with opened(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        os.fchmod(fd, FILE_MODE)
        write_all(fd, data)
        _step(failpoints, "tmp_written")
        os.fsync(fd)
        return os.fstat(fd).st_ino


def settle_name(path: Path, *, failpoints: str = "") -> None:
    """The second half of a durable write: the name is there, make it survive a power cut."""
    try:
        _step(failpoints, "renamed")
        fsync_directory(path.parent)
        if failpoints:
            fp("ckpt.dir.fsynced")
    except OSError as error:
        raise NotDurableError(
            f"{path} was written, but its directory could not be made durable: {error}.",
            cure="Check the disk, then start the run again: it goes on from what it finds.",
        ) from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte: a short write is continued, not taken for the whole."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes and gives no reason")
        view = view[written:]


def write_many(fd: int, buffers: Sequence[bytes | memoryview]) -> None:
    """Write the buffers one behind the other, every byte of them, in as few calls as the system allows."""
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    while left:
        written = os.writev(fd, left[:_BUFFERS_AT_ONCE])
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes and gives no reason")
        done = 0
        while done < len(left) and written >= left[done].nbytes:
            written -= left[done].nbytes
            done += 1
        left = left[done:]
        if written:
            left[0] = left[0][written:]


def sync_data(fd: int) -> None:
    """Make a file's bytes durable, and its size; other facts about it need not be."""
    os.fdatasync(fd)


def rename_into_place(source: Path, target: Path) -> None:
    """Rename a file whose bytes are already durable; the caller fsyncs the directories it touched."""
    os.rename(source, target)


def rename_to_new_name(source: Path, target: Path) -> None:
    """Rename a file to a name that nothing has: FileExistsError if something does. Never replaces a file."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        if target.exists():  # a file system without links: others could still come between
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        os.rename(source, target)
        return
    os.unlink(source)


def remove_quietly(path: str | Path) -> None:
    """Remove a file that nobody depends on; absence is fine."""
    try:
        os.unlink(path)
    except OSError:
        return


def _rename_and_look(staged: Path, path: Path, inode: int, data: bytes) -> None:
    """Rename, then look. What rename reports is not believed: on network file systems it may fail after having
    been done, or succeed without effect."""
    try:
        rename_into_place(staged, path)
    except OSError:
        if not _is_in_place(path, inode, data):
            raise
    if not _is_in_place(path, inode, data):
        raise OSError(errno.EIO, "rename reported success without effect")


def _is_in_place(path: Path, inode: int, data: bytes) -> bool:
    try:
        if os.lstat(path).st_ino == inode:
            return True
        return path.read_bytes() == data  # some network file systems change inode numbers
    except OSError:
        return False


def _step(prefix: str, step: str) -> None:
    if prefix:
        fp(f"{prefix}.{step}")
