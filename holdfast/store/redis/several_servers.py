"""A store over several Redis servers: more memory than one has. The contract is that of one; so is what a failure does.

The first server is *home*: ownership and its lease, manifests, records, events, mail. Pairs and segments lie on the
server that their entry and key choose by a checksum; a segment lies on one as a whole.

What must hold:
1. A new owner gets its token at home, then makes it known on every other server, and writes nothing before. Every
   change compares the token on the server it is made on: an earlier owner is refused everywhere.
2. An epoch is published at home after every other server has confirmed that it has what it was given, and is the one it
   was. A server that is away or has lost something keeps the epoch from being published.
3. An entry that home lists is on every server: home is told last of a new one, first of one that goes. What is left
   on others by a process that died in between goes when the next owner begins.
4. Servers know their place ("2 of 3"). They are never used in another one.

A server that is away makes the store unreachable, for readers, too. Nothing is kept twice: losing the data of one
server loses the store, as with one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import sealed_file
from holdfast.store.base import Event, Identity, Mail, NewEvent, SegmentRef, Store
from holdfast.store.redis import lease, segments, server_settings
from holdfast.store.redis.connection import Command
from holdfast.store.redis.redis_store import RedisStore
from holdfast.store.redis.url import Address, parse


def open_redis(where: str) -> Store:
    """The store of a URL, on one server or several."""
    address = parse(where)
    return SeveralServers(address) if address.others else RedisStore(address)


def place_of(entry: str, key: str, servers: int) -> int:
    """Which server a key lies on. Never to be changed: stores would not find what they hold."""
    return zlib.crc32(f"{entry}/{key}".encode()) % servers


@dataclass(frozen=True)
class SegmentWriter:
    """Stores segments on the servers they belong to. Picklable."""

    writers: tuple[segments.SegmentWriter, ...]

    def __call__(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return self.writers[place_of(entry, key, len(self.writers))](entry, key, local, crc)


class SeveralServers(Store):
    """One store on several servers."""

    executors_may_write = True

    def __init__(self, address: Address) -> None:
        self.address = address
        self.url = self.place = address.url
        count = 1 + len(address.others)
        self._servers = [RedisStore(each, (number, count)) for number, each in enumerate(address.each())]
        self._home, *self._others = self._servers

    def __repr__(self) -> str:
        return f"SeveralServers({self.url!r})"

    def _on(self, entry: str, key: str) -> RedisStore:
        return self._servers[place_of(entry, key, len(self._servers))]

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        for server in self._servers:
            server_settings.check(server._link)
        return super().open(topology)

    def _load_identity(self) -> Identity | None:
        identity = self._home._load_identity()
        if identity is not None:
            for server in self._servers:
                self._check_part(server, identity)
        return identity

    def _check_part(self, server: RedisStore, identity: Identity) -> None:
        found = server._identity = server._load_identity()
        if found is None:
            raise sealed_file.damaged(server.url, "has lost its part of the store: the server was emptied")
        if found != identity:
            raise sealed_file.damaged(server.url, f"holds a part of another store than {self._home.url}")

    def _refuse_leftovers(self) -> None:
        """A server that somebody owned has data; one that nobody did is of a store whose making was interrupted."""
        self._home._refuse_leftovers()
        for server in self._others:
            server._refuse_leftovers()
            if server._load_identity() is not None:
                (owner,) = server._link.ask(("GET", server._layout.owner))
                if server._session.read_owner(owner)["token"]:
                    raise sealed_file.damaged(self._home.url, f"has no identity, but {server.url} holds data")

    def _create(self, identity: Identity) -> None:
        """Home comes last: the store is there when its home is. All go by what the first server to be made holds."""
        for server in (*self._others, self._home):
            server._create(identity)
            found = server._load_identity()
            if server is self._others[0] and found is not None:
                identity = found
            self._check_part(server, identity)

    def _claim(self, take_over: bool) -> OwnerToken:
        for server in self._others:
            server._session.confirms = server_settings.check(server._link)
            server._verify()
        token = self._home._claim(take_over)
        try:
            for server in self._others:
                lease.install(server._session, token)
            self._clear_up()
        except BaseException:
            self._let_go()
            raise
        return token

    def _clear_up(self) -> None:
        known = set(self._home.entries())
        for server in self._others:
            for entry in set(server.entries()) - known:
                server._delete_entry(entry)

    def check_owner(self) -> None:
        for server in self._servers:
            server.check_owner()

    def _give_up(self) -> None:
        self._home._give_up()

    def _let_go(self) -> None:
        for server in self._servers:
            server._let_go()

    def close(self) -> None:
        super().close()
        for server in self._servers:
            server.close()

    def owner(self) -> Mapping[str, Any] | None:
        self.read_identity()
        return self._home.owner()

    # --- entries and pairs ---
    def _create_entry(self, entry: str) -> None:
        for server in (*self._others, self._home):
            server._create_entry(entry)

    def _delete_entry(self, entry: str) -> None:
        for server in self._servers:
            server._delete_entry(entry)

    def entries(self) -> list[str]:
        self.read_identity()
        return self._home.entries()

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        by_server = self._by_server(entry, pairs)
        if not by_server:
            self._home._put(entry, {})  # which checks the owner
        for server, keys in by_server:
            server._put(entry, {key: pairs[key] for key in keys})

    def _get(self, entry: str, key: str) -> bytes | None:
        self.read_identity()
        return self._on(entry, key)._get(entry, key)

    def _delete(self, entry: str, keys: Sequence[str]) -> None:
        for server, some in self._by_server(entry, keys):
            server._delete(entry, some)

    def _keys(self, entry: str) -> Iterable[str]:
        self.read_identity()
        return [key for server in self._servers for key in server._keys(entry)]

    def _by_server(self, entry: str, keys: Iterable[str]) -> list[tuple[RedisStore, list[str]]]:
        found: dict[int, list[str]] = {}
        for key in keys:
            found.setdefault(place_of(entry, key, len(self._servers)), []).append(key)
        return [(self._servers[place], some) for place, some in sorted(found.items())]

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return self._on(entry, key).put_segment(entry, key, local, crc)

    def segment_writer(self) -> SegmentWriter:
        token = self._held()
        writers = []
        for server in self._servers:
            session = server._session
            session.check_owner()
            writers.append(
                segments.SegmentWriter(server.address, session.identity, session.sealer.job, token)
            )
        return SegmentWriter(tuple(writers))

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        self.read_identity()
        self._on(ref.entry, ref.key).fetch_segment(ref, local)

    def describe(self, entry: str, key: str) -> str:
        return self._on(entry, key).describe(entry, key)

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        for server in self._others:
            _confirm(server)
        self._home._publish(region, epoch, manifest)

    def _epochs(self, region: RegionName) -> Iterable[int]:
        self.read_identity()
        return self._home._epochs(region)

    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None:
        self.read_identity()
        return self._home._manifest(region, epoch)

    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        self._home._delete_epoch(region, epoch)

    # --- controller records, events, mailbox ---
    def _save_record(self, name: str, data: bytes) -> None:
        self._home._save_record(name, data)

    def _load_record(self, name: str) -> bytes | None:
        self.read_identity()
        return self._home._load_record(name)

    def _append_events(self, events: Sequence[NewEvent]) -> None:
        self._home._append_events(events)

    def _events_after(self, after: int) -> list[Event]:
        self.read_identity()
        return self._home._events_after(after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        self.read_identity()
        self._home.post(command, data)

    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        return self._home._collect_mail()

    def _probe(self, data: bytes) -> None:
        for server in self._servers:
            server._probe(data)


def _confirm(server: RedisStore) -> None:
    """All that a server was given is on its disk, and it is the one it was. Looking would not do: a change is confirmed
    together with all that came before it."""
    looked: Command = ("EXISTS", server._layout.identity)
    server._session.change(lambda replies, again: [looked], confirm=True)
