"""A store of immutable objects (S3, Google Cloud Storage, Azure, …): no rename, no lock, no file system to share.

    identity   log/<number>   blobs/<token>-<random>   segments/<entry>/<key>   head   alive/   events/   mail/

Bytes go into objects nobody names yet; then the next number of the log is created, which names them: that is a change.
The parts are neighbours: objects_url (places), objects_bucket (what is asked of an object store), objects_state (the
log: who may change what), objects_lease, objects_log (events, mail). Page: docs/formats/store-objects.md.
"""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import FencedError, HoldfastError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import liveness
from holdfast.store.base import Event, Identity, SegmentRef, SegmentWriter
from holdfast.store.files.identity import check_topology
from holdfast.store.names import check_epoch, check_name, check_value
from holdfast.store.objects import blobs as objects_blobs
from holdfast.store.objects import identity as objects_identity
from holdfast.store.objects import lease as objects_lease
from holdfast.store.objects import log as objects_log
from holdfast.store.objects import segments as objects_segments
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.state import Log, Ref, State
from holdfast.store.objects.url import Place, parse
from holdfast.store.publish_lookup import LookedUpStore

logger = logging.getLogger("holdfast")

VALUE_LIMIT = 8 << 20
PROBE_BYTES = 256 << 10


class ObjectStore(LookedUpStore):
    """A store in an object store. Readers need neither `open` nor `acquire`."""

    def __init__(self, where: str | Place) -> None:
        self.place = where if isinstance(where, Place) else parse(where)
        self.url = self.place.url
        self.value_limit = VALUE_LIMIT
        self.executors_may_write = self.place.protocol != "memory"
        self.events_dropped = 0
        self._bucket = Bucket(self.place)
        self._known: tuple[Identity, Log] | None = None
        self._token: OwnerToken | None = None
        self._heart: objects_lease.Heart | None = None
        self._events: objects_log.EventLog | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        if not self.place.exclusive:
            logger.warning("%s cannot keep two runs apart: start one at a time", self.url)
        self._bucket.check_exclusive()
        if objects_identity.load(self._bucket) is None:
            objects_identity.create(self._bucket, topology)
        self._known = None
        identity = self.read_identity()
        check_topology(self.url, identity, topology)
        return identity

    def read_identity(self) -> Identity:
        """The identity of a store that exists, for readers that do not know its topology."""
        return self._store[0]

    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        if self._token is not None:
            raise StoreError(f"{self.url} is already owned by this very object.", cure="Release it first.")
        with durable.translate_os_errors(self.url):
            fp("lease.acquire")
            self._log.check_head()
            self._verify()
            self._token = objects_lease.claim(self._log, take_over=take_over)
            self._log.note_head()
            self._heart = objects_lease.Heart(self._bucket, self._token)
            weakref.finalize(self, self._heart.stop)
            self._events = objects_log.EventLog(self._bucket, self._job)
            objects_lease.clear_up(self._log, self._token)
            fp("lease.acquired")
        return self._token

    def check_owner(self) -> None:
        self._log.check_owner(self._held())

    def release(self) -> None:
        if self._token is None:
            return
        try:
            self._change(lambda state: replace(state, owner={}))
        except FencedError:
            pass  # the newer owner has it already
        finally:
            self._let_go()

    def close(self) -> None:
        """Let go of everything. Without `release` before, the store looks as after a crash."""
        self._let_go()

    def owner(self) -> Mapping[str, Any] | None:
        record = self._log.newest().owner
        if not record:
            return None
        return {**liveness.for_people(record), "alive": objects_lease.seems_alive(self._bucket, record)}

    # --- entries and pairs ---
    def create_entry(self, entry: str) -> None:
        check_name("entry", entry)
        self._change(
            lambda state: (
                None if entry in state.entries else replace(state, entries={**state.entries, entry: {}})
            )
        )

    def delete_entry(self, entry: str) -> None:
        check_name("entry", entry)
        if self._step("gc.delete"):
            return
        self._change_and_clear(
            lambda state: replace(state, entries={e: k for e, k in state.entries.items() if e != entry})
        )
        segments = self._bucket.names(f"segments/{entry}")
        self._bucket.delete(objects_segments.name_of(entry, key) for key in segments)

    def has_entry(self, entry: str) -> bool:
        return check_name("entry", entry) in self._state().entries

    def entries(self) -> list[str]:
        return sorted(self._state().entries)

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        for key, value in pairs.items():
            check_value(entry, check_name("key", key), value, self.value_limit)
        check_name("entry", entry)
        if self._step("ckpt.op.put"):
            return
        taken = set(self._bucket.names(f"segments/{entry}")) & set(pairs)
        if taken:
            raise StoreError(f"{self.describe(entry, min(taken))} is a segment; a pair cannot replace it.")
        self._require_entry(self._state(), entry)
        refs = self._upload([(value, ("pair", entry, key)) for key, value in pairs.items()])

        def step(state: State) -> State | None:
            self._require_entry(state, entry)
            keys = {**state.entries[entry], **dict(zip(pairs, refs, strict=True))}
            return replace(state, entries={**state.entries, entry: keys}) if pairs else None

        self._change_and_clear(step)
        self._step("ckpt.op.put_done")

    def get(self, entry: str, key: str) -> bytes | None:
        check_name("entry", entry)
        check_name("key", key)
        return self._load(lambda state: state.entries.get(entry, {}).get(key), "pair", entry, key)

    def delete(self, entry: str, keys: Sequence[str]) -> None:
        doomed = {check_name("key", key) for key in keys}
        check_name("entry", entry)
        if self._step("gc.delete"):
            return
        self.check_owner()

        def step(state: State) -> State | None:
            before = state.entries.get(entry, {})
            kept = {key: ref for key, ref in before.items() if key not in doomed}
            return (
                None if len(kept) == len(before) else replace(state, entries={**state.entries, entry: kept})
            )

        self._change_and_clear(step)
        found = doomed & set(self._bucket.names(f"segments/{entry}"))
        self._bucket.delete(objects_segments.name_of(entry, key) for key in found)

    def keys(self, entry: str) -> list[str]:
        check_name("entry", entry)
        return sorted({*self._state().entries.get(entry, {}), *self._bucket.names(f"segments/{entry}")})

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        token = self._held()
        return objects_segments.put(self._log, token, check_name("entry", entry), key, Path(local), crc)

    def segment_writer(self) -> SegmentWriter:
        if not self.executors_may_write:
            return super().segment_writer()
        return objects_segments.SegmentWriter(self.place, self._job, int(self._held()))

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        objects_segments.fetch(self._bucket, ref, Path(local))

    def describe(self, entry: str, key: str) -> str:
        return f"{self.url} ({entry}/{key})"

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        (ref,) = self._upload([(manifest, ("manifest", region, epoch))])
        self._step("ckpt.manifest.tmp_written")

        def step(state: State) -> State:
            published = state.epochs.get(region, {})
            newest = max(published, default=None)
            if newest is not None and epoch <= newest:
                raise StoreError(
                    f"epoch {epoch} of region {region!r} is not newer than {newest}, the newest one in {self.url}.",
                    cure="An epoch is published once; start the run again to go on after the newest one.",
                )
            fp("ckpt.manifest.fsynced")
            return replace(state, epochs={**state.epochs, region: {**published, int(epoch): ref}})

        self._change(step)
        self._step("ckpt.manifest.renamed")
        self._log.note_head()
        self._step("ckpt.dir.fsynced")

    def epochs(self, region: RegionName) -> list[Epoch]:
        check_name("region", region)
        return [Epoch(epoch) for epoch in sorted(self._state().epochs.get(region, {}))]

    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        check_name("region", region)
        number = check_epoch(epoch)
        found = self._load(lambda state: state.epochs.get(region, {}).get(number), "manifest", region, number)
        if found is None:
            raise StoreError(f"{self.url}: epoch {epoch} of {region!r} was never published, or is deleted.")
        return found

    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        check_name("region", region)

        def step(state: State) -> State | None:
            before = state.epochs.get(region, {})
            kept = {number: ref for number, ref in before.items() if number != epoch}
            return None if len(kept) == len(before) else replace(state, epochs={**state.epochs, region: kept})

        if not self._step("gc.delete"):
            self._change_and_clear(step)

    # --- controller records, events, mailbox ---
    def save_record(self, name: str, data: bytes) -> None:
        check_name("record", name)
        (ref,) = self._upload([(data, ("record", name))])
        self._change_and_clear(lambda state: replace(state, records={**state.records, name: ref}))

    def load_record(self, name: str) -> bytes | None:
        check_name("record", name)
        return self._load(lambda state: state.records.get(name), "record", name)

    def append_events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        try:
            with self._lock:
                self.check_owner()
                assert self._events is not None
                if events:
                    self._events.append(events)
        except (HoldfastError, OSError, TypeError, ValueError, RecursionError):
            self.events_dropped += len(events)

    def events(self, after: int = -1) -> list[Event]:
        return objects_log.EventLog(self._bucket, self._job).read(after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        objects_log.post(self._bucket, self._job, command, data)

    def collect_mail(self) -> list[tuple[str, Mapping[str, Any]]]:
        with self._lock:
            self.check_owner()
            mails, damaged = objects_log.collect(self._bucket, self._job)
        if damaged:
            self.append_events([("mail.refused", {"reason": f"{self.url} held {damaged} damaged mails"})])
        return mails

    def accepts_writes(self) -> bool:
        self.check_owner()
        name = f"probe/{secrets.token_hex(8)}"
        try:
            self._bucket.create(name, bytes(PROBE_BYTES))
            self._bucket.delete([name])
        except StoreError:
            return False
        return True

    # --- helpers ---
    @property
    def _store(self) -> tuple[Identity, Log]:
        """What this object knows of the store. StoreError if there is none."""
        if self._known is None:
            identity = objects_identity.require(self._bucket)
            self._known = identity, Log(self._bucket, identity.job_id)
        return self._known

    @property
    def _log(self) -> Log:
        return self._store[1]

    @property
    def _job(self) -> str:
        return self._store[0].job_id

    def _state(self) -> State:
        """What this object last saw of its own store as its owner; else what is there now."""
        return self._log.seen() if self._token is not None else self._log.newest()

    def _held(self) -> OwnerToken:
        if self._token is None:
            raise StoreError(
                f"{self.url} is not owned by this run.", cure="Acquire the store before writing."
            )
        return self._token

    def _change(self, step: Callable[[State], State | None]) -> State:
        return self._log.change(self._held(), step)

    def _change_and_clear(self, step: Callable[[State], State | None]) -> None:
        """Change, then delete the blobs that were referred to before and are not any more."""
        before: set[str] = set()

        def noting(state: State) -> State | None:
            before.update(state.refs())
            return step(state)

        after = self._change(noting)
        self._bucket.delete(sorted(before - after.refs()))

    def _upload(self, values: Sequence[tuple[bytes, tuple[object, ...]]]) -> list[Ref]:
        return objects_blobs.upload(self._bucket, self._job, self._held(), values)

    def _load(self, find: Callable[[State], Ref | None], *names: object) -> bytes | None:
        """The verified bytes of a reference; looked up anew if the blob was replaced meanwhile."""
        ref = find(self._state())
        data = None if ref is None else objects_blobs.read(self._bucket, ref)
        if ref is not None and data is None:
            ref = find(self._log.newest())
            data = None if ref is None else objects_blobs.read(self._bucket, ref)
        return None if ref is None else objects_blobs.verified(self._bucket, self._job, ref, data, *names)

    def _verify(self) -> None:
        """Every manifest and record, before an owner goes on. Pairs and segments are verified when read."""
        state = self._log.newest()
        for name in state.records:
            self.load_record(name)
        for region, epochs in state.epochs.items():
            for epoch in epochs:
                self.manifest(RegionName(region), Epoch(epoch))

    def _require_entry(self, state: State, entry: str) -> None:
        if entry not in state.entries:
            raise StoreError(f"{self.url} has no entry {entry!r}.", cure="Create the entry first.")

    def _step(self, name: str) -> bool:
        with durable.translate_os_errors(self.url):
            return fp(name)

    def _let_go(self) -> None:
        heart, self._heart, self._token = self._heart, None, None
        if self._known is not None:
            self._log.forget()
        if heart is not None:
            heart.let_go()
