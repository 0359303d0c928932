"""Event log and mailbox of a directory store.

    events/<token>-<first number>.jsonl      line := crc (8 hexadecimal digits) " " JSON [number, wall, kind, data] "\\n"
    mail/<number>.mail                       sealed JSON [command, data]
    mail/<number>.bad                        a mail that was damaged; set aside as it was, reported in the event log

The log is for people and for the dashboard: it is not fsynced, never fails a run, and a torn or damaged line is
skipped. Each owner writes files of its own; lines of an earlier owner that overlap with a later one's do not count.

A mail gets its number by `link`, which refuses a number that is taken: order without a clock. The owner takes a mail
by renaming it into its private directory, so each is taken once and never by an owner that was replaced. A mail taken
by a process that dies before it acts is lost; whoever posted it sees no effect and posts again.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import HoldfastError
from holdfast.store import sealed_file
from holdfast.store.base import Event, Mail, NewEvent
from holdfast.store.events.as_bytes import (
    SEALED_MAIL_BYTES_MAX,
    decode_mail,
    encode_event,
    encode_mail,
    refuse_large,
)
from holdfast.store.files.lease import Lease

SEGMENT_BYTES = 1 << 20
SEGMENTS = 2
FILES_MAX = 64

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
            text = encode_event(kind, data, first + index)
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
    try:
        number, wall, kind, data = json.loads(text)
        return Event(int(number), float(wall), str(kind), dict(data))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _read_file(path: Path) -> list[Event]:
    try:
        data = sealed_file.read_whole(path) or b""
    except HoldfastError:
        return []
    return [event for line in data.split(b"\n") if line and (event := decode(line))]


# --- mail ---
def post(directory: Path, job: str, command: str, data: Mapping[str, Any]) -> None:
    """Leave a command. Durable when this returns."""
    payload = encode_mail(command, data)
    with durable.translate_os_errors(str(directory)):
        while not _post_as(directory, job, _last_number(directory) + 1, payload):
            pass


def collect(directory: Path, job: str, lease: Lease) -> tuple[list[Mail], list[str]]:
    """Take what was posted, oldest first. Also returns a sentence per mail that was set aside."""
    mails: list[Mail] = []
    refused: list[str] = []
    for name in sealed_file.list_directory(directory):
        if not name.endswith(".mail"):
            continue
        taken = lease.temporary()
        try:
            os.rename(directory / name, taken)
        except OSError:
            if mails:
                break  # what was taken is not lost; the next call meets the failure again
            raise
        try:
            mails.append(_open(taken, directory / name, job))
        except HoldfastError as error:
            _set_aside(taken, (directory / name).with_suffix(".bad"))
            refused.append(error.message)
        else:
            durable.remove_quietly(taken)
    return mails, refused


def _open(taken: Path, posted: Path, job: str) -> Mail:
    with sealed_file.opened(taken) as file:
        if file is None:
            raise sealed_file.damaged(posted, "is gone")
        refuse_large(posted, os.fstat(file.fileno()).st_size)
        data = file.read(SEALED_MAIL_BYTES_MAX + 1)
    payload = sealed_file.unseal(data, posted, "mail", job, posted.stem)
    return decode_mail(payload, posted)


def _set_aside(taken: Path, kept: Path) -> None:
    """For people to look at. Where something lies already that cannot be replaced, it stays in the private directory."""
    try:
        os.rename(taken, kept)
    except OSError:
        return


def _post_as(directory: Path, job: str, number: int, payload: bytes) -> bool:
    """Try to post under a number. False: it is taken."""
    name = f"{number:012d}"
    staged = directory / f".new-{secrets.token_hex(8)}"
    try:
        durable.write_staged(staged, sealed_file.seal("mail", job, name, payload))
        os.link(staged, directory / f"{name}.mail")
    except FileExistsError:
        return False
    finally:
        durable.remove_quietly(staged)
    durable.fsync_directory(directory)
    return True


def _last_number(directory: Path) -> int:
    numbers = (name.partition(".")[0] for name in sealed_file.list_directory(directory))
    return max((int(number) for number in numbers if number.isdigit()), default=0)
