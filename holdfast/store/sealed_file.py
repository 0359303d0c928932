"""Sealed files: a readable first line that says what the file is and proves its bytes. And careful reading.

    holdfast <kind> <version> <job> <name> <size> <crc>\\n
    <size bytes>

`crc` is the CRC-32, in eight hexadecimal digits, of the line up to it and of the bytes. Kind, job and name are
compared when reading: a valid file of another store, region or epoch is refused like a damaged one.
Used for identity, owner, records, manifests and mail. Page: docs/formats/store-files.md.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.durable import checksum
from holdfast.errors import DamagedError, MismatchError, StoreError

MAGIC = "holdfast"
VERSION = 1
NO_JOB = "-"
HEADER_LIMIT = 1024

RESTORE = "Restore the file from a backup. Nothing was changed."
_NOT_UNDERSTOOD = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, NotImplementedError, RecursionError, struct.error,
)  # fmt: skip
_NOT_A_FILE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})


def seal(kind: str, job: str, name: str, payload: bytes) -> bytes:
    head = f"{MAGIC} {kind} {VERSION} {job} {name} {len(payload)}".encode()
    return b"%b %08x\n%b" % (head, checksum(payload, checksum(head)), payload)


def unseal(data: bytes, path: Path | str, kind: str, job: str, name: str) -> bytes:
    """The payload, verified. DamagedError naming `path`, MismatchError if a newer holdfast wrote it."""
    line, newline, payload = data[:HEADER_LIMIT].partition(b"\n")
    if not newline:
        raise damaged(path, "has no header" if data else "is empty")
    payload = data[len(line) + 1 :]
    fields = line.decode("ascii", "replace").split(" ")
    if len(fields) != 7 or fields[0] != MAGIC:
        raise damaged(path, "has a header nobody wrote")
    refuse_newer(path, fields[2])
    head, _, crc = line.rpartition(b" ")
    if crc != b"%08x" % checksum(payload, checksum(head)) or fields[5] != str(len(payload)):
        raise damaged(path, "does not match its checksum")
    if fields[1] != kind or fields[4] != name:
        raise damaged(path, f"is the {fields[1]} {fields[4]!r}, but lies where the {kind} {name!r} belongs")
    if fields[3] != job:
        raise damaged(path, f"belongs to job {fields[3]}, but lies in the store of job {job}")
    return payload


def refuse_newer(path: Path | str, version: str) -> None:
    """MismatchError if a format number is higher than what this program writes."""
    if version.isdigit() and int(version) > VERSION:
        raise MismatchError(
            f"{path} has format {version}; this program knows formats up to {VERSION}.",
            cure="Use the holdfast version that wrote it, or a newer one. Nothing was changed.",
        )


def damaged(path: Path | str, what: str) -> DamagedError:
    return DamagedError(f"{path} {what}.", cure=RESTORE)


@contextmanager
def understood(path: Path | str) -> Iterator[None]:
    """Around the reading of content whose checksum was right. Whoever can write there can make a checksum, too: what is not of
    the form that was written is damage like any other."""
    try:
        yield
    except _NOT_UNDERSTOOD as error:
        raise damaged(path, f"holds what holdfast never writes ({type(error).__name__}: {error})") from error


def open_regular(path: Path) -> int | None:
    """A descriptor of a regular file, never of what a link points to. None: there is no such file."""
    # Without O_NONBLOCK a pipe put in the file's place would hang the reader.
    fd = _open(path, os.O_NONBLOCK, "regular file")
    if fd is None or stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise damaged(path, "is not a regular file")


def _open(path: Path, flags: int, what: str) -> int | None:
    try:
        return os.open(path, flags | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise damaged(path, f"is not a {what}") from error
        raise reading_failed(path, error) from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO | None]:
    """A regular file to be read. None: there is no such file. StoreError if reading fails."""
    fd = open_regular(path)
    if fd is None:
        yield None
        return
    try:
        with os.fdopen(fd, "rb") as file:
            yield file
    except OSError as error:
        raise reading_failed(path, error) from error


def read_whole(path: Path) -> bytes | None:
    """All bytes of a regular file. None: there is no such file."""
    with opened(path) as file:
        return None if file is None else file.read()


def read_sealed(path: Path, kind: str, job: str, name: str) -> bytes | None:
    """The verified payload of a sealed file. None: there is no such file."""
    data = read_whole(path)
    return None if data is None else unseal(data, path, kind, job, name)


def list_directory(path: Path) -> list[str]:
    """Sorted names in a directory; empty if it is missing. A link or file in its place is damage."""
    fd = _open(path, os.O_DIRECTORY, "directory")
    if fd is None:
        return []
    try:
        return sorted(os.listdir(fd))
    except OSError as error:
        raise reading_failed(path, error) from error
    finally:
        os.close(fd)


def reading_failed(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"reading {path} failed: {error.strerror or error}.", cure="Check the disk and the permissions."
    )
