"""What a store in Redis must hold: its first values, and three catalogues that say what else has to be there.

    entries   the entries           names   the records           epochs   the published epochs of each region

A catalogue changes in the same transaction as what it lists. What it lists and the server does not have was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holdfast.store import refusals, sealed_file
from holdfast.store.base import Identity
from holdfast.store.redis.connection import Command, Link
from holdfast.store.redis.transactions import Session
from holdfast.store.redis.values import Layout, Sealer, seal_identity

ALONE = (0, 1)
"""The place of a server that holds a whole store: number 0 of 1."""


def create(link: Link, identity: Identity, place: tuple[int, int] = ALONE) -> None:
    """Write the first values, all at once. If another process was faster, its values count. `place`: which of how many
    servers this one is."""
    layout, sealer = Layout(link.address.name), Sealer(link.address.url, identity.job_id)
    values: dict[str, bytes] = {
        layout.identity: seal_identity(identity),
        layout.owner: sealer.seal_json({"token": 0}, "owner"),
        layout.clock: b"0",
        layout.entries: sealer.seal_json([], "catalogue", "entries"),
        layout.names: sealer.seal_json([], "catalogue", "names"),
        layout.epochs: sealer.seal_json({}, "catalogue", "epochs"),
    }
    if place != ALONE:
        values[layout.place] = sealer.seal_json(place, "place")
    link.ask(("MSETNX", *(word for pair in values.items() for word in pair)))


def refuse_leftovers(link: Link) -> None:
    """Data without an identity is never taken for a new store."""
    layout = Layout(link.address.name)
    identity, others = link.ask(
        ("EXISTS", layout.identity), ("EXISTS", *layout.founding[1:], layout.records, layout.events)
    )
    if others and not identity:
        raise sealed_file.damaged(link.address.url, "has no identity, but holds a store's data")


def read(session: Session, which: str, value: Any) -> Any:
    return session.sealer.open_json(value, "catalogue", which)


def write(session: Session, which: str, content: Any) -> Command:
    return ("SET", session.layout.key(which), session.sealer.seal_json(content, "catalogue", which))


def require_entry(session: Session, value: Any, entry: str) -> None:
    """StoreError unless the catalogue of entries has this one."""
    if entry not in read(session, "entries", value):
        raise refusals.no_entry(session.place, entry)


def change_list(
    session: Session,
    which: str,
    change: Callable[[Sequence[str]], Iterable[str]],
    *commands: Command,
    confirm: bool = False,
) -> None:
    """Perform commands, and change a catalogue of names with them if it changes at all."""
    key = session.layout.key(which)

    def decide(replies: list[Any], again: bool) -> list[Command]:
        before = read(session, which, replies[0])
        after = sorted(change(before))
        return [*commands, *([] if after == before else [write(session, which, after)])]

    session.change(decide, watch=[key], reads=[("GET", key)], confirm=confirm)
