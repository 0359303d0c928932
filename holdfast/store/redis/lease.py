"""Ownership of a store in Redis: an owner record with a growing token, and a key that lives while the owner does.

The key `alive:<token>` expires unless the owner's thread renews it; the server's clock alone counts. An owner whose
key is gone, or whose process on this very machine is gone, is replaced at once. The token decides who may write, not
the lease: an owner that was silent for too long and replaced is refused every change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.errors import NoSpaceError
from holdfast.ids import OwnerToken
from holdfast.store import liveness, refusals
from holdfast.store.liveness import Heart
from holdfast.store.redis.connection import Command, Link, Unreachable
from holdfast.store.redis.transactions import Session


def owner_info(session: Session) -> dict[str, Any] | None:
    """Who owns the store, and whether it lives. None: nobody."""
    while True:
        (value,) = session.link.ask(("GET", session.layout.owner))
        record = session.read_owner(value)
        if not record["token"] or record.get("released"):
            return None
        value_again, beats = session.link.ask(
            ("GET", session.layout.owner), ("EXISTS", session.layout.alive(record["token"]))
        )
        if value_again == value:
            return {**record, "alive": bool(beats) and not liveness.has_ended(record)}


def acquire(session: Session, *, take_over: bool) -> OwnerToken:
    """Become the owner: the record is replaced by one with the next token, if nobody else is faster."""
    layout, nonce = session.layout, secrets.token_hex(8)
    token = 0

    def decide(replies: list[Any], again: bool) -> list[Command]:
        nonlocal token
        record = session.read_owner(replies[0])
        if again and record.get("nonce") == nonce:
            return []
        if not take_over and record["token"] and not record.get("released"):
            info = owner_info(session)
            if info and info["alive"]:
                raise refusals.owned(session.place, info)
        token = record["token"] + 1
        mine = {"token": token, **liveness.this_process(), "nonce": nonce}
        return [
            ("SET", layout.owner, session.sealer.seal_json(mine, "owner")),
            ("SET", layout.alive(token), nonce, "PX", lease_ms(session.link)),
        ]

    session.change(decide, reads=[("GET", layout.owner)], confirm=True, as_owner=False)
    return OwnerToken(token)


def install(session: Session, token: OwnerToken) -> None:
    """Make the owner of a store known on one of its further servers: from then on whoever has an older token is refused
    there, too. FencedError if a newer owner was faster."""

    def decide(replies: list[Any], again: bool) -> list[Command]:
        record = session.read_owner(replies[0])
        if record["token"] > token:
            raise refusals.fenced(session.place, token)
        mine = {"token": token, **liveness.this_process()}
        return [("SET", session.layout.owner, session.sealer.seal_json(mine, "owner"))]

    session.change(decide, reads=[("GET", session.layout.owner)], confirm=True, as_owner=False)
    session.token = token


def release(session: Session) -> None:
    """Say that the owner stopped cleanly. Without memory for that the lease is let go, which does as well."""
    layout, token = session.layout, session.token or 0
    gone: Command = ("DEL", layout.alive(token))

    def decide(replies: list[Any], again: bool) -> list[Command]:
        record: Mapping[str, Any] = {**session.read_owner(replies[0]), "released": True}
        return [("SET", layout.owner, session.sealer.seal_json(record, "owner")), gone]

    try:
        session.change(decide, reads=[("GET", layout.owner)], confirm=True)
    except NoSpaceError:
        session.link.ask(gone)


def lease_ms(link: Link) -> int:
    return int(link.address.lease_s * 1000)


def beat(link: Link, key: str) -> None:
    """Renew a lease. That stores nothing new, so that it works without memory, too."""
    try:
        with link.line() as line:
            if not line.exchange([("PEXPIRE", key, lease_ms(link))])[0]:
                line.exchange([("SET", key, "late", "PX", lease_ms(link))])
    except Unreachable:
        pass  # the next beat comes soon; every change checks the token anyway


def end(link: Link, key: str) -> None:
    with link.line() as line:
        line.exchange([("DEL", key)])


def start_heart(session: Session, token: OwnerToken) -> Heart:
    link, key = session.link, session.layout.alive(token)
    return Heart(link.address.lease_s, lambda _: beat(link, key), partial(end, link, key))
