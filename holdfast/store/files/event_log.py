"""The bounded event log of a directory store: rotating files of checksummed JSON lines.

    events/<token>-<first number>.jsonl      line := crc (8 hexadecimal digits) " " JSON "\\n"
    JSON := [number, wall, kind, data]

The log is for people and for the dashboard: it is not fsynced, never fails a run, and a torn or damaged line is
skipped. Each owner writes files of its own; lines of an earlier owner that overlap with a later one's do not count.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import HoldfastError
from holdfast.store import sealed_file
from holdfast.store.base import Event, NewEvent
from holdfast.store.event_mail_bytes import encode_event
from holdfast.store.files.lease import Lease

SEGMENT_BYTES = 1 << 20
SEGMENTS = 2
FILES_MAX = 64
LINE_BYTES_MAX = 1 << 16

_NAME = re.compile(r"(?P<token>\d{10})-(?P<first>\d{15})\.jsonl")


class EventLog:
    """Appends of one owner; reading by anybody."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._size = 0
        self._next: int | None = None

    def append(self, lease: Lease, events: Sequence[NewEvent]) -> int:
        """Append what can be appended; returns how many could not."""
        with self._lock:
            written = 0
            try:
                if lease.is_fenced():
                    raise OSError("a newer owner writes the log now")
                if self._next is None:
                    self._next = max((event.number for event in self.read()), default=-1) + 1
                for batch in self._batches(self._next, events):
                    self._append(lease, self._next, b"".join(batch))
                    self._next += len(batch)
                    written += len(batch)
            except (OSError, HoldfastError, TypeError, ValueError, RecursionError):
                if self._next is not None:
                    self._next += len(events) - written  # a number is never used twice
                self._path = None  # the file may end in half a line: begin another one
            return len(events) - written

    def read(self, after: int = -1) -> list[Event]:
        """Events in order, without those lost to damage."""
        result: list[Event] = []
        ceiling: int | None = None
        later_token = ""
        for token, first, path in reversed(self._files()):
            if token != later_token:
                ceiling = result[0].number if result else None
                later_token = token
            events = [e for e in _read_file(path) if ceiling is None or e.number < ceiling]
            result = events + result
            if first <= after:
                break
        return [event for event in result if event.number > after]

    def _batches(self, first: int, events: Sequence[NewEvent]) -> Iterator[list[bytes]]:
        """Lines in pieces, each small enough for a file of its own."""
        batch: list[bytes] = []
        for index, (kind, data) in enumerate(events):
            text = encode_event(kind, data, LINE_BYTES_MAX, first + index)
            batch.append(b"%08x %b\n" % (checksum(text), text))
            if sum(map(len, batch)) > SEGMENT_BYTES // 4:
                yield batch
                batch = []
        if batch:
            yield batch

    def _append(self, lease: Lease, first: int, data: bytes) -> None:
        if self._path is None or self._size + len(data) > SEGMENT_BYTES:
            self._path = self._directory / f"{lease.token:010d}-{first:015d}.jsonl"
            self._size = 0
            self._make_room()
        with durable.opened(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
            if not self._size:
                os.fchmod(fd, durable.FILE_MODE)
            durable.write_all(fd, data)
        self._size += len(data)

    def _make_room(self) -> None:
        """Remove the oldest files beyond the bound; the file about to be begun may grow to a whole segment."""
        room = SEGMENT_BYTES * (SEGMENTS - 1)
        for index, (_, _, path) in enumerate(reversed(self._files())):
            room -= path.lstat().st_size
            if room < 0 or index >= FILES_MAX - 1:
                durable.remove_quietly(path)

    def _files(self) -> list[tuple[str, int, Path]]:
        names = sealed_file.list_directory(self._directory)
        found = [match for name in names if (match := _NAME.fullmatch(name))]
        return [(match["token"], int(match["first"]), self._directory / match[0]) for match in found]


def decode(line: bytes) -> Event | None:
    """The event of a line. None: the line is damaged."""
    crc, _, text = line.partition(b" ")
    if crc != b"%08x" % checksum(text):
        return None
    number, wall, kind, data = json.loads(text)
    return Event(number, wall, kind, data)


def _read_file(path: Path) -> list[Event]:
    try:
        data = sealed_file.read_whole(path) or b""
    except HoldfastError:
        return []
    return [event for line in data.split(b"\n") if line and (event := decode(line))]
