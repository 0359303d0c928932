"""What is remembered of files that were read: how far, when they were modified, what they began and ended with.

It is kept in columns, a few bytes per file: a position holds these facts for every file ever read. Of the time of
modification 16 bits are enough to see that it is another one; the check recognises a file under another name, and one that
grew.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from holdfast.errors import StateError

_LOOK_BYTES = 1024
_COLUMNS = (("size", 8), ("time", 2), ("check", 4))


_QUICK, _SMALL = 1, 6
"""Levels of compression: of what is packed for each epoch or step, and of what is packed once."""
_BASE64 = ":"
"""Text in base64 begins with it, which base85 does not have: that is how text was made before, at twice the time."""


def pack(values: Sequence[Any], once: bool = False) -> str:
    """A list of plain data as compressed text."""
    return _text(json.dumps(values).encode(), once)


def unpack(text: str) -> list[Any]:
    """What `pack` packed. Raises StateError if it is something else."""
    try:
        return list(json.loads(_bytes(text)))
    except (ValueError, zlib.error) as error:
        raise StateError(
            "a file source's snapshot cannot be read.", cure="Restore an earlier epoch."
        ) from error


class Fact(NamedTuple):
    """A file when it was read. `size`: how many bytes were read, -1 if not known; `time`, `check`: 0 if not known."""

    size: int = -1
    time: int = 0
    check: int = 0


UNKNOWN = Fact()


def time_of(mtime_ns: int) -> int:
    """A time of modification in 16 bits, never 0."""
    return zlib.crc32(mtime_ns.to_bytes(8, "little", signed=True)) % 0xFFFF + 1


def _text(data: bytes, once: bool) -> str:
    compressed = zlib.compress(data, _SMALL if once else _QUICK)
    return _BASE64 + base64.b64encode(compressed).decode("ascii")


def _bytes(text: str) -> bytes:
    if text.startswith(_BASE64):
        return zlib.decompress(base64.b64decode(text[len(_BASE64) :], validate=True))
    return zlib.decompress(base64.b85decode(text))


def pack_facts(facts: Sequence[Fact], once: bool = False) -> str:
    """Facts as compressed text: column by column, sizes as differences."""
    columns = np.array(facts, dtype=np.int64).reshape(-1, 3).T
    steps = np.diff(columns[0], prepend=0)
    columns[0] = (steps << 1) ^ (steps >> 63)
    planes = [
        column.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
        for column, (_, width) in zip(columns, _COLUMNS, strict=True)
    ]
    return _text(b"".join(planes), once)


def unpack_facts(text: str, count: int) -> list[Fact]:
    """What `pack_facts` packed. Raises StateError if it is something else."""
    try:
        data = np.frombuffer(_bytes(text), dtype=np.uint8)
        planes = data.reshape(sum(width for _, width in _COLUMNS), count).astype(np.int64)
    except (ValueError, zlib.error) as error:
        raise StateError(
            "what is known of files cannot be read.", cure="Restore an earlier epoch."
        ) from error
    columns, at = [], 0
    for _, width in _COLUMNS:
        columns.append(sum(planes[at + byte] << (8 * byte) for byte in range(width)))
        at += width
    columns[0] = np.cumsum((columns[0] >> 1) ^ -(columns[0] & 1))
    return [Fact(*fact) for fact in zip(*(column.tolist() for column in columns), strict=True)]


def is_same(fact: Fact, stat: os.stat_result) -> bool:
    """Whether a file is as it was, as far as that is known."""
    return fact.size in (-1, stat.st_size) and fact.time in (0, time_of(stat.st_mtime_ns))


def what_changed(fact: Fact, stat: os.stat_result) -> str:
    """For people."""
    when = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="milliseconds")
    if fact.size == 0:
        return f"it was empty and has {stat.st_size} bytes now, modified at {when}"
    if fact.size == stat.st_size:
        return f"it has {stat.st_size} bytes as before, but was modified at {when}"
    how = "grew" if stat.st_size > fact.size else "shrank"
    return f"it {how} from {fact.size} to {stat.st_size} bytes, modified at {when}"


def fingerprint(path: str, end: int, opener: Callable[..., Any] = open) -> int:
    """A checksum of the first and the last bytes before `end`, never 0."""
    with opener(path, "rb") as file:
        head = file.read(min(_LOOK_BYTES, end))
        file.seek(max(0, end - _LOOK_BYTES))
        return zlib.crc32(file.read(min(_LOOK_BYTES, end)), zlib.crc32(head)) or 1


# --- files that grow ---


def complete_end(path: str, begin: int, size: int) -> int:
    """Offset behind the last whole line of begin..size; `begin` if there is none."""
    with open(path, "rb") as file:
        while size > begin:
            start = max(begin, size - (1 << 16))
            file.seek(start)
            found = file.read(size - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            size = start
    return begin


def next_line(path: str, end: int) -> int | None:
    """Where the line begins that follows what was read up to `end`; None if the last line that was read goes on."""
    if end == 0:
        return 0
    with open(path, "rb") as file:
        file.seek(end - 1)
        around = file.read(3)
    if around[:1] == b"\n":
        return end
    behind = around[1:]
    return end + 1 if behind[:1] == b"\n" else end + 2 if behind == b"\r\n" else None
