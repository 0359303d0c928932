"""Event log and mailbox of a store in Redis: two lists.

    events         sealed JSON [wall, kind, data], the newest at the end; cut to EVENTS_MAX
    events:count   how many there ever were: the number of an event follows from its place
    mail           sealed JSON [id, command, data], oldest first; cut by the owner when it has read them

Anybody may leave a mail. If the server does not answer, the mail's id tells whether it arrived.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import DamagedError, StoreError
from holdfast.store.base import Event, Mail, NewEvent
from holdfast.store.events.as_bytes import decode_mail, encode_event, encode_mail, open_mails
from holdfast.store.redis.connection import Command, Unreachable
from holdfast.store.redis.transactions import Session

EVENTS_MAX = 4096
MAIL_MAX = 1000
_SLACK = 64
"""Events that may arrive between asking for their number and reading them."""


def append_events(session: Session, events: Sequence[NewEvent]) -> None:
    """Append, and drop the oldest beyond the bound."""
    layout = session.layout
    values = [session.sealer.seal(encode_event(kind, data), "event") for kind, data in events]
    before: list[int] = []

    def decide(replies: list[Any], again: bool) -> list[Command]:
        count = int(replies[0] or 0)
        if again and before and count >= before[-1] + len(values) and values[-1] in replies[1]:
            return []
        before.append(count)
        return [
            ("RPUSH", layout.events, *values),
            ("LTRIM", layout.events, -EVENTS_MAX, -1),
            ("INCRBY", layout.event_count, len(values)),
        ]

    if values:
        newest: Command = ("LRANGE", layout.events, -_SLACK - len(values), -1)
        session.change(decide, reads=[("GET", layout.event_count), newest])


def read_events(session: Session, after: int) -> list[Event]:
    """Events in order, without those lost to damage."""
    layout, start = session.layout, -EVENTS_MAX
    if after >= 0:
        (count,) = session.link.ask(("GET", layout.event_count))
        start = max(start, -(int(count or 0) - after + _SLACK))
    count, values = session.link.ask(
        ("GET", layout.event_count), ("LRANGE", layout.events, min(start, -1), -1)
    )
    first = int(count or 0) - len(values)
    found = [(first + place, _open_event(session, value)) for place, value in enumerate(values)]
    return [Event(number, *fields) for number, fields in found if fields is not None and number > after]


def post(session: Session, command: str, data: Mapping[str, Any]) -> None:
    layout, name = session.layout, secrets.token_hex(8)
    value = session.sealer.seal(encode_mail(command, data, name), "mail")
    waiting, identity = session.link.ask(("LLEN", layout.mail), ("GET", layout.identity))
    if identity != session.identity:
        raise session.sealer.damaged("holds another store than a moment ago")
    if waiting >= MAIL_MAX:
        raise StoreError(
            f"{session.place} holds {waiting} commands nobody collected.", cure="Start the run, or wait."
        )
    try:
        with session.link.line() as line:
            line.exchange([("RPUSH", layout.mail, value)])
    except Unreachable as error:
        (found,) = session.link.ask(("LRANGE", layout.mail, 0, -1))
        if value not in found:
            raise StoreError(
                f"{session.place} did not answer: nobody knows whether the command {command[:40]!r} arrived.",
                cure="Look at the run's status, and ask again if it had no effect.",
            ) from error


def collect_mail(session: Session) -> tuple[list[Mail], list[str]]:
    """Take what was posted, oldest first. Also returns a sentence per mail that was damaged."""
    layout = session.layout
    taken: list[bytes] = []

    def decide(replies: list[Any], again: bool) -> list[Command]:
        waiting = list(replies[0])
        if again and taken and waiting[: len(taken)] != taken:
            return []  # they are gone already: the first try was performed
        taken[:] = waiting
        return [("LTRIM", layout.mail, len(waiting), -1)] if waiting else []

    session.change(decide, reads=[("LRANGE", layout.mail, 0, -1)])
    return open_mails(taken, lambda value: decode_mail(session.sealer.open(value, "mail"), session.place))


def _open_event(session: Session, value: bytes) -> list[Any] | None:
    try:
        return list(session.sealer.open_json(value, "event"))
    except DamagedError:
        return None
