"""A store on a Redis server: for clusters whose machines share no file system.

Entries are hashes, keys are fields (document 003). The parts are neighbours of this module: url (addresses),
connection (and its errors), transactions (changes: fenced, looked up when in doubt), lease (ownership), server_settings
(does the server keep data), values (names, checksums), catalogue (what there must be), segments, events_and_mail.
docs/formats/store-redis.md describes every key and what is guaranteed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import liveness, refusals, segment_copy
from holdfast.store.base import Event, Identity, Mail, NewEvent, SegmentRef, Store
from holdfast.store.liveness import Heart
from holdfast.store.names import check_name
from holdfast.store.redis import catalogue, events_and_mail, lease, segments, server_settings
from holdfast.store.redis.connection import Command, Link
from holdfast.store.redis.transactions import Session
from holdfast.store.redis.url import Address, parse
from holdfast.store.redis.values import PAIR, SEGMENT, Layout, Sealer, open_identity

BATCH_BYTES = 16 << 20
"""Bytes of one transaction; a larger `put` takes several."""


class RedisStore(Store):
    """A store on a server. Readers need neither `open` nor `acquire`."""

    executors_may_write = True

    def __init__(self, where: str | Address, place: tuple[int, int] = catalogue.ALONE) -> None:
        """`place`: which of how many servers it is, if the store is spread over several (several_servers.py)."""
        self.address = where if isinstance(where, Address) else parse(where)
        assert not self.address.others, "a store over several servers is opened by open_redis"
        self._place_in = place
        self.url = self.place = self.address.url
        self._link = Link(self.address)
        self._layout = Layout(self.address.name)
        self._known: Session | None = None
        self._heart: Heart | None = None
        self._collecting = threading.Lock()

    def __repr__(self) -> str:
        return f"RedisStore({self.url!r})"

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        server_settings.check(self._link)
        return super().open(topology)

    def _load_identity(self) -> Identity | None:
        value, place = self._link.ask(("GET", self._layout.identity), ("GET", self._layout.place))
        if value is None:
            return None
        identity = open_identity(self.url, value)
        found = catalogue.ALONE
        if place is not None:
            found = tuple(Sealer(self.url, identity.job_id).open_json(place, "place"))
        if found != self._place_in:
            raise _wrong_place(self.url, found, self._place_in)
        self._known = Session(self._link, value, identity.job_id)
        return identity

    def _refuse_leftovers(self) -> None:
        catalogue.refuse_leftovers(self._link)

    def _create(self, identity: Identity) -> None:
        catalogue.create(self._link, identity, self._place_in)

    @property
    def _session(self) -> Session:
        """What this object knows of the store. StoreError if there is none."""
        self.read_identity()
        assert self._known is not None
        return self._known

    @property
    def _sealer(self) -> Sealer:
        return self._session.sealer

    def _claim(self, take_over: bool) -> OwnerToken:
        session = self._session
        session.confirms = server_settings.check(self._link)
        self._verify()
        session.token = lease.acquire(session, take_over=take_over)
        self._heart = lease.start_heart(session, session.token)
        weakref.finalize(self, self._heart.stop)
        return session.token

    def _verify(self) -> None:
        """Every catalogue, record and manifest, before an owner goes on. Pairs and segments are verified when read."""
        layout = self._layout
        entries, names, epochs, records = self._link.ask(
            ("GET", layout.entries), ("GET", layout.names), ("GET", layout.epochs), ("HKEYS", layout.records)
        )
        self._catalogue("entries", entries)
        if self._catalogue("names", names) != sorted(field.decode("utf-8", "replace") for field in records):
            raise self._sealer.damaged("lacks records, or holds some nobody saved")
        for name in self._catalogue("names", names):
            self.load_record(name)
        for region in self._catalogue("epochs", epochs):
            for epoch in self.epochs(RegionName(region)):
                self.manifest(RegionName(region), epoch)

    def check_owner(self) -> None:
        self._session.check_owner()

    def _give_up(self) -> None:
        lease.release(self._session)

    def _let_go(self) -> None:
        heart, self._heart = self._heart, None
        if self._known is not None:
            self._known.token = None
        if heart is not None:
            heart.let_go()

    def close(self) -> None:
        super().close()
        self._link.close()

    def owner(self) -> Mapping[str, Any] | None:
        info = lease.owner_info(self._session)
        return None if info is None else liveness.for_people(info)

    # --- entries and pairs ---
    def _create_entry(self, entry: str) -> None:
        catalogue.change_list(self._session, "entries", lambda names: {*names, entry})

    def _delete_entry(self, entry: str) -> None:
        gone: Command = ("UNLINK", self._layout.entry(entry))
        catalogue.change_list(self._session, "entries", lambda names: {*names} - {entry}, gone)

    def entries(self) -> list[str]:
        (value,) = self._link.ask(("GET", self._layout.entries))
        return list(self._catalogue("entries", value))

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        for batch in _batches(pairs):
            self._put_batch(entry, batch)

    def _put_batch(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        session, hashed = self._session, self._layout.entry(entry)
        words: list[str | bytes] = []
        for key, value in pairs.items():
            words += [PAIR + key, session.sealer.seal(value, "pair", entry, key)]

        def decide(replies: list[Any], again: bool) -> list[Command]:
            catalogue.require_entry(session, replies[0], entry)
            for key, is_segment in zip(pairs, replies[1:], strict=True):
                if is_segment:
                    raise refusals.is_segment(self.describe(entry, key))
            return [("HSET", hashed, *words)] if words else []

        taken: list[Command] = [("HEXISTS", hashed, SEGMENT + key) for key in pairs]
        entries: Command = ("GET", self._layout.entries)
        session.change(decide, watch=[self._layout.entries], reads=[entries, *taken])

    def _get(self, entry: str, key: str) -> bytes | None:
        (value,) = self._link.ask(("HGET", self._layout.entry(entry), PAIR + key))
        return None if value is None else self._sealer.open(value, "pair", entry, key)

    def _delete(self, entry: str, keys: Sequence[str]) -> None:
        hashed, doomed = self._layout.entry(entry), set(keys)

        def decide(replies: list[Any], again: bool) -> list[Command]:
            fields = [field for field in replies[0] if _key_of(field) in doomed]
            return [("HDEL", hashed, *fields)] if fields else []

        self._session.change(decide, reads=[("HKEYS", hashed)])

    def _keys(self, entry: str) -> set[str]:
        (fields,) = self._link.ask(("HKEYS", self._layout.entry(entry)))
        return {_key_of(field) for field in fields}

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return segments.put(self._session, check_name("entry", entry), key, local, crc)

    def segment_writer(self) -> segments.SegmentWriter:
        session = self._session
        session.check_owner()
        return segments.SegmentWriter(self.address, session.identity, session.sealer.job, self._held())

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        where = self.describe(ref.entry, ref.key)
        segment_copy.receive(ref, Path(local), where, segments.stored(self._session, ref))

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        session = self._session
        hashed, field = self._layout.region(region), str(epoch)
        value = session.sealer.seal(manifest, "manifest", region, epoch)

        def decide(replies: list[Any], again: bool) -> list[Command]:
            published: dict[str, list[int]] = self._catalogue("epochs", replies[0])
            before = published.get(region, [])
            if again and max(before, default=-1) == epoch and replies[1] == value:
                return []
            refusals.refuse_stale(self.url, region, epoch, before)
            fp("ckpt.manifest.fsynced")
            after = {**published, region: [*before, epoch]}
            return [("HSET", hashed, field, value), catalogue.write(session, "epochs", after)]

        fp("ckpt.manifest.tmp_written")
        reads: list[Command] = [("GET", self._layout.epochs), ("HGET", hashed, field)]
        session.change(decide, watch=[self._layout.epochs], reads=reads, confirm=True)
        fp("ckpt.manifest.renamed")
        fp("ckpt.dir.fsynced")

    def _epochs(self, region: RegionName) -> list[int]:
        known, fields = self._link.ask(("GET", self._layout.epochs), ("HKEYS", self._layout.region(region)))
        published: list[int] = sorted(self._catalogue("epochs", known).get(region, ()))
        if published != sorted(int(field) for field in fields if field.isdigit()):
            raise self._sealer.damaged(
                f"lacks manifests of region {region!r}, or holds some nobody published"
            )
        return published

    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None:
        one: Command = ("HGET", self._layout.region(region), str(epoch))
        known, value = self._link.ask(("GET", self._layout.epochs), one)
        if epoch not in self._catalogue("epochs", known).get(region, ()):
            return None
        return self._sealer.open(value, "manifest", region, epoch)

    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        def decide(replies: list[Any], again: bool) -> list[Command]:
            published = self._catalogue("epochs", replies[0])
            if epoch not in published.get(region, ()):
                return []
            kept = [other for other in published[region] if other != epoch]
            gone: Command = ("HDEL", self._layout.region(region), str(epoch))
            return [gone, catalogue.write(self._session, "epochs", {**published, region: kept})]

        reads: list[Command] = [("GET", self._layout.epochs)]
        self._session.change(decide, watch=[self._layout.epochs], reads=reads)

    # --- controller records, events, mailbox ---
    def _save_record(self, name: str, data: bytes) -> None:
        write: Command = ("HSET", self._layout.records, name, self._sealer.seal(data, "record", name))
        catalogue.change_list(self._session, "names", lambda names: {*names, name}, write, confirm=True)

    def _load_record(self, name: str) -> bytes | None:
        names, value = self._link.ask(("GET", self._layout.names), ("HGET", self._layout.records, name))
        known = name in self._catalogue("names", names)
        return None if value is None and not known else self._sealer.open(value, "record", name)

    def _append_events(self, events: Sequence[NewEvent]) -> None:
        events_and_mail.append_events(self._session, events)

    def _events_after(self, after: int) -> list[Event]:
        return events_and_mail.read_events(self._session, after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        events_and_mail.post(self._session, command, data)

    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        with self._collecting:
            return events_and_mail.collect_mail(self._session)

    def _probe(self, data: bytes) -> None:
        probe = self._layout.key("probe")
        write: Command = ("SET", probe, data, "PX", lease.lease_ms(self._link))
        self._session.change(lambda replies, again: [write, ("DEL", probe)])

    def _catalogue(self, which: str, value: Any) -> Any:
        return catalogue.read(self._session, which, value)


def _wrong_place(url: str, found: tuple[int, ...], asked: tuple[int, int]) -> ConfigError:
    """Keys are found by the number of a server: with other numbers nothing would be where it is looked for."""

    def told(number: int, count: int) -> str:
        return "a whole store" if count == 1 else f"server {number + 1} of {count} of a store"

    return ConfigError(
        f"{url} holds {told(*found)}, but is used as {told(*asked)}.",
        cure="Name all servers of the store, in the order it was made with; to spread it anew, fork it into a new store.",
    )


def _key_of(field: bytes) -> str:
    """The key a field of an entry belongs to: every field begins with its kind."""
    return (field.decode("utf-8", "replace").split(":") + [""])[1]


def _batches(pairs: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Pairs in portions of bounded size; at least one, so that a put of nothing still checks the owner."""
    batch: dict[str, bytes] = {}
    size = 0
    for key, value in pairs.items():
        if batch and size + len(value) > BATCH_BYTES:
            yield batch
            batch, size = {}, 0
        batch[key] = value
        size += len(value)
    yield batch
