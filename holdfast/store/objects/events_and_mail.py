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
from holdfast.store.base import Event, Mail, NewEvent
from holdfast.store.events.as_bytes import (
    SEALED_MAIL_BYTES_MAX,
    decode_mail,
    encode_event,
    encode_mail,
    open_mails,
    refuse_large,
)
from holdfast.store.objects.bucket import Bucket

OBJECTS_MAX = 256
"""Objects of the event log, at most; a quarter is deleted at once when there are more."""
MAIL_MAX = 1000
EVENTS, MAIL = "events", "mail"


class EventLog:
    """Appends of one owner, under its lock; reading by anybody."""

    def __init__(self, bucket: Bucket, job: str) -> None:
        self._bucket = bucket
        self._job = job
        self._next: int | None = None
        self._appends = 0

    def append(self, events: Sequence[NewEvent]) -> None:
        if self._next is None:
            self._next = max((first + count for first, count in self._spans()), default=0)
        lines = b"\n".join(encode_event(kind, data) for kind, data in events)
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
    # The time makes two mails of the same words differ: the second is not taken for the first.
    payload = json.dumps([time.time_ns()]).encode() + b"\n" + encode_mail(command, data)
    while True:
        waiting = [name for name in bucket.names(MAIL) if name.isdigit()]
        if len(waiting) >= MAIL_MAX:
            raise StoreError(f"{bucket.url} holds {len(waiting)} commands nobody collected.", cure="Wait.")
        name = f"{max(map(int, waiting), default=0) + 1:012d}"
        if bucket.create(f"{MAIL}/{name}", sealed_file.seal("mail", job, name, payload)):
            return


def collect(bucket: Bucket, job: str) -> tuple[list[Mail], list[str]]:
    """Take what was posted, oldest first. Also returns a sentence per mail that was damaged."""

    def open_one(mail: tuple[str, int, bytes]) -> Mail:
        name, size, data = mail
        place = f"{bucket.url}/{MAIL}/{name}"
        refuse_large(place, size)
        payload = sealed_file.unseal(data, place, "mail", job, name)
        return decode_mail(payload.partition(b"\n")[2], place)

    sizes = [(name, bucket.size(f"{MAIL}/{name}")) for name in bucket.names(MAIL)]
    found = [
        (name, size, bucket.read(f"{MAIL}/{name}", 0, SEALED_MAIL_BYTES_MAX)) for name, size in sizes if size
    ]
    waiting = [(name, size, data) for name, size, data in found if data is not None]
    bucket.delete(f"{MAIL}/{name}" for name, _ in sizes)
    return open_mails(waiting, open_one)
