"""A tar archive of plain files, written and read strictly: nothing but regular files with short, plain names.

Links, directories, devices, extended headers, sparse files, names with separators: whatever this module does not write
it refuses to read. Names are labels and never become paths.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.durable import checksum
from holdfast.errors import ConfigError, DamagedError

BLOCK = tarfile.BLOCKSIZE
SIZE_LIMIT = 8 << 30
_NAME = re.compile(r"[a-z][a-z0-9-]{0,60}")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive: where its bytes begin, and how many there are."""

    name: str
    size: int
    offset: int


def write_member(file: BinaryIO, name: str, size: int, chunks: Iterable[bytes]) -> None:
    """Append one file. `chunks` must have `size` bytes together."""
    file.write(_header(name, size))
    written = 0
    for chunk in chunks:
        written += file.write(chunk)
    if written != size:
        raise DamagedError(
            f"{name} has {written} bytes instead of {size}.",
            cure="Check the store with `holdfast checkpoints verify`.",
        )
    file.write(bytes(-size % BLOCK))


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    try:
        return info.tobuf(tarfile.USTAR_FORMAT)
    except ValueError as error:
        raise ConfigError(
            f"{name} has {size} bytes; an archive takes files below 8 GiB.", cure="Copy the store instead."
        ) from error


def write_end(file: BinaryIO) -> None:
    file.write(bytes(2 * BLOCK))


def read_members(file: BinaryIO, where: str) -> list[Member]:
    """Every file of the archive. DamagedError for anything that `write_member` does not write."""
    length = file.seek(0, 2)
    found: list[Member] = []
    offset = 0
    while True:
        file.seek(offset)
        block = file.read(BLOCK)
        if len(block) < BLOCK:
            raise refused(where, "it ends in the middle")
        if not block.strip(b"\0"):
            break
        member = _member(block, offset + BLOCK, where)
        offset = member.offset + member.size + -member.size % BLOCK
        if offset > length:
            raise refused(where, f"it ends before {member.name} does")
        file.seek(member.offset + member.size)
        if file.read(-member.size % BLOCK).strip(b"\0"):
            raise refused(where, f"something lies behind {member.name}")
        found.append(member)
    if length - offset != 2 * BLOCK or file.read(BLOCK).strip(b"\0"):
        raise refused(where, "something follows its end")
    return found


def _member(block: bytes, offset: int, where: str) -> Member:
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "surrogateescape")
    except tarfile.HeaderError as error:
        raise refused(where, f"a header in it is none ({error})") from error
    # Not a bit of the header may differ from what this module writes.
    is_plain = bool(_NAME.fullmatch(info.name)) and 0 <= info.size < SIZE_LIMIT
    if not is_plain or block != _header(info.name, info.size):
        raise refused(where, f"{info.name[:60]!r} in it is not a plain file of an export")
    return Member(info.name, info.size, offset)


def chunks_of(file: BinaryIO, member: Member, crc: int, where: str) -> Iterable[bytes]:
    """The bytes of a member, piece by piece. DamagedError at the end if they do not have this checksum."""
    file.seek(member.offset)
    left, found = member.size, 0
    while left:
        chunk = file.read(min(left, _CHUNK))
        if not chunk:
            raise refused(where, f"it ends before {member.name} does")
        left -= len(chunk)
        found = checksum(chunk, found)
        yield chunk
    if found != crc:
        raise refused(where, f"the checksum of {member.name} does not match")


def refused(where: str, why: str) -> DamagedError:
    return DamagedError(
        f"{where} is not an export as it was written: {why}.", cure="Nothing was changed. Export it again."
    )
