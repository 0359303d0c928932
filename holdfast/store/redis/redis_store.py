"""A store on a Redis server: for clusters whose machines share no file system.

Entries are hashes, keys are fields (document 003). The parts are neighbours of this module: redis_url (addresses),
redis_link (connections, errors), redis_session (changes: fenced, looked up when in doubt), redis_lease (ownership),
redis_settings (does the server keep data), redis_values (names, checksums, catalogues), redis_segments, redis_log.
docs/formats/store-redis.md describes every key and what is guaranteed.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import FencedError, HoldfastError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import liveness
from holdfast.store.base import FORMAT, Event, Identity, SegmentRef
from holdfast.store.files.identity import check_topology
from holdfast.store.names import check_epoch, check_name, check_value
from holdfast.store.publish_lookup import LookedUpStore
from holdfast.store.redis import catalogue as redis_catalogue
from holdfast.store.redis import lease as redis_lease
from holdfast.store.redis import log as redis_log
from holdfast.store.redis import segments as redis_segments
from holdfast.store.redis import settings as redis_settings
from holdfast.store.redis.link import Command, Link
from holdfast.store.redis.session import Session
from holdfast.store.redis.url import Address, parse
from holdfast.store.redis.values import PAIR, SEGMENT, Layout, Sealer, open_identity

VALUE_LIMIT = 8 << 20
BATCH_BYTES = 16 << 20
"""Bytes of one transaction; a larger `put` takes several."""
PROBE_BYTES = 256 << 10


class RedisStore(LookedUpStore):
    """A store on a server. Readers need neither `open` nor `acquire`."""

    def __init__(self, where: str | Address) -> None:
        self.address = where if isinstance(where, Address) else parse(where)
        self.url = self.address.url
        self.value_limit = VALUE_LIMIT
        self.executors_may_write = True
        self.events_dropped = 0
        self._link = Link(self.address)
        self._layout = Layout(self.address.name)
        self._known: Session | None = None
        self._heart: redis_lease.Heart | None = None
        self._collecting = threading.Lock()

    def __repr__(self) -> str:
        return f"RedisStore({self.url!r})"

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        redis_settings.check(self._link)
        (value,) = self._link.ask(("GET", self._layout.identity))
        if value is None:
            redis_catalogue.create(self._link, Identity(secrets.token_hex(16), topology, FORMAT))
        self._known = None
        identity = self.read_identity()
        check_topology(self.url, identity, topology)
        return identity

    def read_identity(self) -> Identity:
        """The identity of a store that exists, for readers that do not know its topology."""
        return open_identity(self.url, self._session.identity)

    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        session = self._session
        if session.token is not None:
            raise StoreError(f"{self.url} is already owned by this very object.", cure="Release it first.")
        with durable.translate_os_errors(self.url):
            fp("lease.acquire")
            session.confirms = redis_settings.check(self._link)
            self._verify()
            session.token = redis_lease.acquire(session, take_over=take_over)
            self._heart = redis_lease.Heart(session, session.token)
            weakref.finalize(self, self._heart.stop)
            fp("lease.acquired")
        return session.token

    def check_owner(self) -> None:
        self._session.check_owner()

    def release(self) -> None:
        session = self._known
        if session is None or session.token is None:
            return
        try:
            redis_lease.release(session)
        except FencedError:
            pass  # the newer owner has it already
        finally:
            self._let_go()

    def close(self) -> None:
        """Let go of everything. Without `release` before, the store looks as after a crash."""
        self._let_go()
        self._link.close()

    def owner(self) -> Mapping[str, Any] | None:
        info = redis_lease.owner_info(self._session)
        return None if info is None else liveness.for_people(info)

    # --- entries and pairs ---
    def create_entry(self, entry: str) -> None:
        check_name("entry", entry)
        redis_catalogue.change_list(self._session, "entries", lambda names: {*names, entry})

    def delete_entry(self, entry: str) -> None:
        gone: Command = ("UNLINK", self._layout.entry(check_name("entry", entry)))
        if not self._step("gc.delete"):
            redis_catalogue.change_list(self._session, "entries", lambda names: {*names} - {entry}, gone)

    def has_entry(self, entry: str) -> bool:
        return check_name("entry", entry) in self.entries()

    def entries(self) -> list[str]:
        (value,) = self._link.ask(("GET", self._layout.entries))
        return list(self._catalogue("entries", value))

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        for key, value in pairs.items():
            check_value(entry, check_name("key", key), value, self.value_limit)
        check_name("entry", entry)
        if self._step("ckpt.op.put"):
            return
        for batch in _batches(pairs):
            self._put(entry, batch)
        self._step("ckpt.op.put_done")

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        session, hashed = self._session, self._layout.entry(entry)
        words: list[str | bytes] = []
        for key, value in pairs.items():
            words += [PAIR + key, session.sealer.seal(value, "pair", entry, key)]

        def decide(replies: list[Any], again: bool) -> list[Command]:
            redis_segments.require_entry(session, replies[0], entry)
            for key, is_segment in zip(pairs, replies[1:], strict=True):
                if is_segment:
                    raise StoreError(f"{self.describe(entry, key)} is a segment; a pair cannot replace it.")
            return [("HSET", hashed, *words)] if words else []

        segments: list[Command] = [("HEXISTS", hashed, SEGMENT + key) for key in pairs]
        entries: Command = ("GET", self._layout.entries)
        session.change(decide, watch=[self._layout.entries], reads=[entries, *segments])

    def get(self, entry: str, key: str) -> bytes | None:
        field = PAIR + check_name("key", key)
        (value,) = self._link.ask(("HGET", self._layout.entry(check_name("entry", entry)), field))
        return None if value is None else self._sealer.open(value, "pair", entry, key)

    def delete(self, entry: str, keys: Sequence[str]) -> None:
        doomed = {check_name("key", key) for key in keys}
        hashed = self._layout.entry(check_name("entry", entry))

        def decide(replies: list[Any], again: bool) -> list[Command]:
            fields = [field for field in replies[0] if _key_of(field) in doomed]
            return [("HDEL", hashed, *fields)] if fields else []

        if not self._step("gc.delete"):
            self._session.change(decide, reads=[("HKEYS", hashed)])

    def keys(self, entry: str) -> list[str]:
        (fields,) = self._link.ask(("HKEYS", self._layout.entry(check_name("entry", entry))))
        return sorted({_key_of(field) for field in fields})

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return redis_segments.put(self._session, check_name("entry", entry), key, local, crc)

    def segment_writer(self) -> redis_segments.SegmentWriter:
        """What executors store segments with, under this owner's token."""
        session = self._session
        session.check_owner()
        return redis_segments.SegmentWriter(
            self.address, session.identity, session.sealer.job, int(session.token or 0)
        )

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        redis_segments.fetch(self._session, ref, Path(local))

    def describe(self, entry: str, key: str) -> str:
        return f"{self.url} ({entry}/{key})"

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        session = self._session
        hashed, field = self._layout.region(region), str(epoch)
        value = session.sealer.seal(manifest, "manifest", region, epoch)

        def decide(replies: list[Any], again: bool) -> list[Command]:
            published: dict[str, list[int]] = self._catalogue("epochs", replies[0])
            newest = max(published.get(region, ()), default=None)
            if again and newest == epoch and replies[1] == value:
                return []
            if newest is not None and epoch <= newest:
                raise StoreError(
                    f"epoch {epoch} of region {region!r} is not newer than {newest}, the newest one in {self.url}.",
                    cure="An epoch is published once; start the run again to go on after the newest one.",
                )
            published[region] = [*published.get(region, ()), epoch]
            fp("ckpt.manifest.fsynced")
            return [("HSET", hashed, field, value), redis_catalogue.write(session, "epochs", published)]

        self._step("ckpt.manifest.tmp_written")
        reads: list[Command] = [("GET", self._layout.epochs), ("HGET", hashed, field)]
        session.change(decide, watch=[self._layout.epochs], reads=reads, confirm=True)
        self._step("ckpt.manifest.renamed")
        self._step("ckpt.dir.fsynced")

    def epochs(self, region: RegionName) -> list[Epoch]:
        check_name("region", region)
        catalogue, fields = self._link.ask(
            ("GET", self._layout.epochs), ("HKEYS", self._layout.region(region))
        )
        published = sorted(self._catalogue("epochs", catalogue).get(region, ()))
        if published != sorted(int(field) for field in fields if field.isdigit()):
            raise self._sealer.damaged(
                f"lacks manifests of region {region!r}, or holds some nobody published"
            )
        return [Epoch(epoch) for epoch in published]

    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        check_name("region", region)
        hashed = self._layout.region(region)
        catalogue, value = self._link.ask(
            ("GET", self._layout.epochs), ("HGET", hashed, str(check_epoch(epoch)))
        )
        if epoch not in self._catalogue("epochs", catalogue).get(region, ()):
            raise StoreError(f"{self.url}: epoch {epoch} of {region!r} was never published, or is deleted.")
        return self._sealer.open(value, "manifest", region, epoch)

    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        check_name("region", region)
        session = self._session

        def decide(replies: list[Any], again: bool) -> list[Command]:
            published = self._catalogue("epochs", replies[0])
            kept = [other for other in published.get(region, ()) if other != epoch]
            if len(kept) == len(published.get(region, ())):
                return []
            gone: Command = ("HDEL", self._layout.region(region), str(epoch))
            return [gone, redis_catalogue.write(session, "epochs", {**published, region: kept})]

        if not self._step("gc.delete"):
            reads: list[Command] = [("GET", self._layout.epochs)]
            session.change(decide, watch=[self._layout.epochs], reads=reads)

    # --- controller records, events, mailbox ---
    def save_record(self, name: str, data: bytes) -> None:
        check_name("record", name)
        value = self._sealer.seal(data, "record", name)
        write: Command = ("HSET", self._layout.records, name, value)
        redis_catalogue.change_list(self._session, "names", lambda names: {*names, name}, write, confirm=True)

    def load_record(self, name: str) -> bytes | None:
        check_name("record", name)
        names, value = self._link.ask(("GET", self._layout.names), ("HGET", self._layout.records, name))
        known = name in self._catalogue("names", names)
        return None if value is None and not known else self._sealer.open(value, "record", name)

    def append_events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        try:
            redis_log.append_events(self._session, events)
        except (HoldfastError, TypeError, ValueError, RecursionError):
            self.events_dropped += len(events)

    def events(self, after: int = -1) -> list[Event]:
        return redis_log.read_events(self._session, after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        redis_log.post(self._session, command, data)

    def collect_mail(self) -> list[tuple[str, Mapping[str, Any]]]:
        with self._collecting:
            mails, damaged = redis_log.collect_mail(self._session)
        if damaged:
            self.append_events([("mail.refused", {"reason": f"{self.url} held {damaged} damaged mails"})])
        return mails

    def accepts_writes(self) -> bool:
        self.check_owner()
        probe = self._layout.key("probe")
        write: Command = ("SET", probe, bytes(PROBE_BYTES), "PX", redis_lease.lease_ms(self._link))
        try:
            self._session.change(lambda replies, again: [write, ("DEL", probe)])
        except FencedError:
            raise
        except StoreError:
            return False
        return True

    # --- helpers ---
    @property
    def _session(self) -> Session:
        """What this object knows of the store. StoreError if there is none."""
        if self._known is None:
            (value,) = self._link.ask(("GET", self._layout.identity))
            if value is None:
                redis_catalogue.refuse_leftovers(self._link)
                raise StoreError(
                    f"there is no store at {self.url}.", cure="A run creates its store when it starts."
                )
            self._known = Session(self._link, value, open_identity(self.url, value).job_id)
        return self._known

    @property
    def _sealer(self) -> Sealer:
        return self._session.sealer

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

    def _catalogue(self, which: str, value: Any) -> Any:
        return redis_catalogue.read(self._session, which, value)

    def _step(self, name: str) -> bool:
        with durable.translate_os_errors(self.url):
            return fp(name)

    def _let_go(self) -> None:
        heart, self._heart = self._heart, None
        if self._known is not None:
            self._known.token = None
        if heart is not None:
            heart.let_go()


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
