"""Event log and mailbox of a store of objects.

    events/<first number>-<count>    sealed JSON lines of one append; the oldest objects are deleted
    mail/<number>                    sealed JSON [command, data]; created exclusively, deleted by the owner that read it

Both are for people: an event that cannot be written is dropped. In the moment of a take-over the owner that is being
replaced may still collect a mail; whoever posted it sees no effect and posts again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError, StoreError
from holdfast.store import sealed_file
from holdfast.store.base import Event
from holdfast.store.objects.bucket import Bucket

OBJECTS_MAX = 256
"""Objects of the event log, at most; a quarter is deleted at once when there are more."""
EVENT_BYTES_MAX = 16 << 10
MAIL_BYTES_MAX = 1 << 16
MAIL_MAX = 1000
EVENTS, MAIL = "events", "mail"

Mails = list[tuple[str, Mapping[str, Any]]]


class EventLog:
    """Appends of one owner, under its lock; reading by anybody."""

    def __init__(self, bucket: Bucket, job: str) -> None:
        self._bucket = bucket
        self._job = job
        self._next: int | None = None
        self._appends = 0

    def append(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        if self._next is None:
            self._next = max((first + count for first, count in self._spans()), default=0)
        lines = b"\n".join(_line(kind, data) for kind, data in events)
        name = f"{self._next:015d}-{len(events)}"
        self._next += len(events)  # a number is never used twice, written or not
        if not self._bucket.create(f"{EVENTS}/{name}", sealed_file.seal("events", self._job, name, lines)):
            raise StoreError(f"{self._bucket.url}/{EVENTS}/{name} was written by somebody else.")
        if self._appends % (OBJECTS_MAX // 4) == 0:
            self._make_room()
        self._appends += 1

    def read(self, after: int) -> list[Event]:
        """Events in order, without those lost to damage."""
        result: list[Event] = []
        for first, count in self._spans():
            if first + count - 1 > after:
                result += self._read(first, count)
        return [event for event in result if event.number > after]

    def _read(self, first: int, count: int) -> list[Event]:
        name = f"{first:015d}-{count}"
        try:
            data = self._bucket.read(f"{EVENTS}/{name}")
            lines = sealed_file.unseal(data or b"", name, "events", self._job, name).split(b"\n")
            return [Event(first + place, *json.loads(line)) for place, line in enumerate(lines)]
        except (HoldfastError, ValueError, TypeError):
            return []

    def _spans(self) -> list[tuple[int, int]]:
        names = (name.partition("-") for name in self._bucket.names(EVENTS))
        return [(int(first), int(count)) for first, _, count in names if first.isdigit() and count.isdigit()]

    def _make_room(self) -> None:
        names = self._bucket.names(EVENTS)
        if len(names) > OBJECTS_MAX:
            self._bucket.delete(f"{EVENTS}/{name}" for name in names[: -OBJECTS_MAX * 3 // 4])


def post(bucket: Bucket, job: str, command: str, data: Mapping[str, Any]) -> None:
    """Leave a command for the owner."""
    payload = json.dumps([command, dict(data)]).encode()
    if len(payload) > MAIL_BYTES_MAX:
        raise StoreError(
            f"the command {command[:40]!r} has {len(payload)} bytes; {MAIL_BYTES_MAX} are allowed."
        )
    while True:
        waiting = [name for name in bucket.names(MAIL) if name.isdigit()]
        if len(waiting) >= MAIL_MAX:
            raise StoreError(f"{bucket.url} holds {len(waiting)} commands nobody collected.", cure="Wait.")
        name = f"{max(map(int, waiting), default=0) + 1:012d}"
        # The time makes two mails of the same words differ: the second is not taken for the first.
        sealed_mail = sealed_file.seal(
            "mail", job, name, json.dumps([time.time_ns()]).encode() + b"\n" + payload
        )
        if bucket.create(f"{MAIL}/{name}", sealed_mail):
            return


def collect(bucket: Bucket, job: str) -> tuple[Mails, int]:
    """Take what was posted, oldest first. Also returns how many mails were damaged."""
    mails: Mails = []
    damaged = 0
    for name in bucket.names(MAIL):
        data = bucket.read(f"{MAIL}/{name}")
        if data is None:
            continue
        try:
            payload = sealed_file.unseal(data, f"{bucket.url}/{MAIL}/{name}", "mail", job, name)
            command, arguments = json.loads(payload.partition(b"\n")[2])
            mails.append((str(command), dict(arguments)))
        except (HoldfastError, ValueError, TypeError):
            damaged += 1
        bucket.delete([f"{MAIL}/{name}"])
    return mails, damaged


def _line(kind: str, data: Mapping[str, Any]) -> bytes:
    """An event as JSON on one line. Data that is too large is replaced by its size."""
    value = json.dumps([time.time(), kind, dict(data)], default=str).encode()
    if len(value) > EVENT_BYTES_MAX:
        value = json.dumps([time.time(), kind[:100], {"left_out_bytes": len(value)}]).encode()
    return value
