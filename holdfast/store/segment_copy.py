"""Between a local file and a stored segment: what is read is verified, what is written is whole or absent."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast import durable
from holdfast.durable import checksum
from holdfast.store import refusals, sealed_file
from holdfast.store.base import SegmentRef


def opened(local: Path) -> BinaryIO:
    """A regular file that is to be stored."""
    fd = sealed_file.open_regular(Path(local))
    if fd is None:
        raise refusals.no_local_file(local)
    return os.fdopen(fd, "rb")


def size_of(local: Path) -> int:
    with opened(local) as file:
        return os.fstat(file.fileno()).st_size


def pieces(local: Path, crc: int, piece_bytes: int) -> Iterator[bytes]:
    """The same, piece by piece. StoreError at the end if it does not have the checksum its writer gave."""
    found = 0
    try:
        with opened(local) as file:
            while piece := file.read(piece_bytes):
                found = checksum(piece, found)
                yield piece
    except OSError as error:
        raise sealed_file.reading_failed(local, error) from error
    if found != crc:
        raise refusals.wrong_checksum(local)


def receive(ref: SegmentRef, local: Path, where: str, stored: Iterable[bytes]) -> None:
    """Write a segment's pieces to `local`. DamagedError naming `where` if they are not what the reference says;
    nothing is left behind then."""
    staged = staged_beside(local)
    crc = size = 0
    try:
        with durable.translate_os_errors(str(local)):
            with open(staged, "xb") as out:
                os.fchmod(out.fileno(), durable.FILE_MODE)
                for piece in stored:
                    out.write(piece)
                    crc, size = checksum(piece, crc), size + len(piece)
            if (crc, size) != (ref.crc, ref.size):
                raise sealed_file.damaged(where, "has a size or checksum that differ from its reference")
            os.replace(staged, local)
    finally:
        durable.remove_quietly(staged)


def staged_beside(local: Path) -> Path:
    return local.with_name(f".{local.name}.{secrets.token_hex(4)}")
