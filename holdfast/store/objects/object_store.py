"""A store of immutable objects (S3, Google Cloud Storage, Azure, …): no rename, no lock, no file system to share.

    identity   log/<number>   blobs/<token>-<random>   segments/<entry>/<key>   head   alive/   events/   mail/

Bytes go into objects nobody names yet; then the next number of the log is created, which names them: that is a change.
The parts are neighbours: url (places), bucket (what is asked of an object store), contents_log (states: who
may change what), segments, lease, events_and_mail. Page: docs/formats/store-objects.md.
"""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import identity_record, liveness, refusals, sealed_file, segment_copy
from holdfast.store.base import Event, Identity, Mail, NewEvent, SegmentRef, SegmentWriter, Store
from holdfast.store.identity_record import NAME as IDENTITY
from holdfast.store.liveness import Heart
from holdfast.store.names import check_name, named_crc
from holdfast.store.objects import events_and_mail, lease, segments
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.contents_log import LATER, LOG, Log, Ref, State
from holdfast.store.objects.url import Place, parse

logger = logging.getLogger("holdfast")


class ObjectStore(Store):
    """A store in an object store. Readers need neither `open` nor `acquire`."""

    pays_for_writes = True

    def __init__(self, where: str | Place) -> None:
        self._where = where if isinstance(where, Place) else parse(where)
        self.url = self.place = self._where.url
        self.executors_may_write = self._where.protocol != "memory"
        self.commands_s = self._where.commands_s
        self._bucket = Bucket(self._where)
        self._known: Log | None = None
        self._heart: Heart | None = None
        self._events: events_and_mail.EventLog | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        if not self._where.exclusive:
            logger.warning("%s cannot keep two runs apart: start one at a time", self.url)
        self._bucket.check_exclusive()
        self._known = None
        return super().open(topology)

    def _load_identity(self) -> Identity | None:
        data = self._bucket.read(IDENTITY)
        return None if data is None else identity_record.unseal(f"{self.url}/{IDENTITY}", data)

    def _refuse_leftovers(self) -> None:
        names = set(self._bucket.names()) - {"probe"}
        if not self._bucket.exists(IDENTITY):  # else another process was faster
            identity_record.refuse_leftovers(self.url, names, LATER | {LOG})

    def _create(self, identity: Identity) -> None:
        self._bucket.create(IDENTITY, identity_record.seal(identity))

    @property
    def _log(self) -> Log:
        """The log of what is there. StoreError if there is no store."""
        if self._known is None:
            self._known = Log(self._bucket, self._job)
        return self._known

    def _claim(self, take_over: bool) -> OwnerToken:
        self._log.check_head()
        self._verify()
        token = lease.claim(self._log, take_over=take_over)
        self._log.note_head()
        self._heart = lease.start_heart(self._bucket, token)
        weakref.finalize(self, self._heart.stop)
        self._events = events_and_mail.EventLog(self._bucket, self._job)
        lease.clear_up(self._log, token)
        return token

    def _verify(self) -> None:
        """Every manifest and record, before an owner goes on. Pairs and segments are verified when read."""
        state = self._log.newest()
        for name in state.records:
            self.load_record(name)
        for region, epochs in state.epochs.items():
            for epoch in epochs:
                self.manifest(RegionName(region), Epoch(epoch))

    def check_owner(self) -> None:
        self._log.check_owner(self._held())

    def _give_up(self) -> None:
        self._change(lambda state: replace(state, owner={}))

    def _let_go(self) -> None:
        heart, self._heart = self._heart, None
        if self._known is not None:
            self._known.forget()
        if heart is not None:
            heart.let_go()

    def rest(self, is_idle: bool) -> None:
        if self._heart is not None:
            self._heart.keep(self._where.lease_s * (lease.IDLE_LEASES if is_idle else 1))

    def owner(self) -> Mapping[str, Any] | None:
        record = self._log.newest().owner
        if not record:
            return None
        return {**liveness.for_people(record), "alive": lease.seems_alive(self._bucket, record)}

    # --- looking and changing ---
    def _state(self) -> State:
        """What this object last saw of its own store as its owner; else what is there now."""
        return self._log.seen() if self._token is not None else self._log.newest()

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
        """Store values, each with its kind and names, in one new blob; where each of them is. The checksum of a value
        covers job, kind, names and bytes, so that another value in its place does not match."""
        name = f"blobs/{self._held():010d}-{secrets.token_hex(12)}"
        start = 0
        refs: list[Ref] = []
        for value, names in values:
            refs.append((name, start, len(value), named_crc(self._job, *names, value=value)))
            start += len(value)
        if values and not self._bucket.create(name, b"".join(value for value, _ in values)):
            raise StoreError(f"{self.url}/{name} was written by somebody else.")
        return refs

    def _load(self, find: Callable[[State], Ref | None], *names: object) -> bytes | None:
        """The verified bytes of a reference; looked up anew if the blob was replaced meanwhile."""
        ref = find(self._state())
        if ref is None or (data := self._read(ref)) is None:
            ref = None if ref is None else find(self._log.newest())
            if ref is None:
                return None
            data = self._read(ref)
        if data is not None and len(data) == ref[2] and named_crc(self._job, *names, value=data) == ref[3]:
            return data
        how = "is missing" if data is None else "does not match its checksum"
        raise sealed_file.damaged(f"{self.url}/{ref[0]}", f"holds {' '.join(map(str, names))}, which {how}")

    def _read(self, ref: Ref) -> bytes | None:
        """The bytes of a reference, not verified. None: its blob is not there."""
        name, start, size, _ = ref
        if size == 0:
            return b"" if self._bucket.exists(name) else None
        return self._bucket.read(name, start, start + size)

    # --- entries and pairs ---
    def _create_entry(self, entry: str) -> None:
        self._change(lambda state: None if entry in state.entries else state.with_entry(entry, {}))

    def _delete_entry(self, entry: str) -> None:
        self._change_and_clear(
            lambda state: replace(state, entries={e: k for e, k in state.entries.items() if e != entry})
        )
        self._delete_segments(entry, self._segments(entry))

    def entries(self) -> list[str]:
        return sorted(self._state().entries)

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        taken = self._segments(entry) & set(pairs)
        if taken:
            raise refusals.is_segment(self.describe(entry, min(taken)))
        self._require_entry(self._state(), entry)
        refs = self._upload([(value, ("pair", entry, key)) for key, value in pairs.items()])

        def step(state: State) -> State | None:
            self._require_entry(state, entry)
            keys = {**state.entries[entry], **dict(zip(pairs, refs, strict=True))}
            return state.with_entry(entry, keys) if pairs else None

        self._change_and_clear(step)

    def _get(self, entry: str, key: str) -> bytes | None:
        return self._load(lambda state: state.entries.get(entry, {}).get(key), "pair", entry, key)

    def _delete(self, entry: str, keys: Sequence[str]) -> None:
        self.check_owner()

        def step(state: State) -> State | None:
            before = state.entries.get(entry, {})
            kept = {key: ref for key, ref in before.items() if key not in doomed}
            return None if len(kept) == len(before) else state.with_entry(entry, kept)

        doomed = set(keys)
        self._change_and_clear(step)
        self._delete_segments(entry, doomed & self._segments(entry))

    def _keys(self, entry: str) -> set[str]:
        return {*self._state().entries.get(entry, {}), *self._segments(entry)}

    def _require_entry(self, state: State, entry: str) -> None:
        if entry not in state.entries:
            raise refusals.no_entry(self.url, entry)

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        token = self._held()
        return segments.put(self._log, token, check_name("entry", entry), key, Path(local), crc)

    def segment_writer(self) -> SegmentWriter:
        if not self.executors_may_write:
            return super().segment_writer()
        return segments.SegmentWriter(self._where, self._job, int(self._held()))

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        where = self.describe(ref.entry, ref.key)
        segment_copy.receive(ref, Path(local), where, segments.stored(self._bucket, ref))

    def _segments(self, entry: str) -> set[str]:
        return set(self._bucket.names(f"segments/{entry}"))

    def _delete_segments(self, entry: str, keys: Iterable[str]) -> None:
        self._bucket.delete(segments.name_of(entry, key) for key in keys)

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        (ref,) = self._upload([(manifest, ("manifest", region, epoch))])
        fp("ckpt.manifest.tmp_written")

        def step(state: State) -> State:
            published = state.epochs.get(region, {})
            refusals.refuse_stale(self.url, region, epoch, published)
            fp("ckpt.manifest.fsynced")
            return state.with_region(region, {**published, int(epoch): ref})

        self._change(step)
        fp("ckpt.manifest.renamed")
        self._log.note_head()
        fp("ckpt.dir.fsynced")

    def _epochs(self, region: RegionName) -> Iterable[int]:
        return self._state().epochs.get(region, {})

    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None:
        return self._load(lambda state: state.epochs.get(region, {}).get(epoch), "manifest", region, epoch)

    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        def step(state: State) -> State | None:
            before = state.epochs.get(region, {})
            kept = {number: ref for number, ref in before.items() if number != epoch}
            return None if len(kept) == len(before) else state.with_region(region, kept)

        self._change_and_clear(step)

    # --- controller records, events, mailbox ---
    def _save_record(self, name: str, data: bytes) -> None:
        (ref,) = self._upload([(data, ("record", name))])
        self._change_and_clear(lambda state: replace(state, records={**state.records, name: ref}))

    def _load_record(self, name: str) -> bytes | None:
        return self._load(lambda state: state.records.get(name), "record", name)

    def _append_events(self, events: Sequence[NewEvent]) -> None:
        with self._lock:
            self.check_owner()
            assert self._events is not None
            if events:
                self._events.append(events)

    def _events_after(self, after: int) -> list[Event]:
        return events_and_mail.EventLog(self._bucket, self._job).read(after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        events_and_mail.post(self._bucket, self._job, command, data)

    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        with self._lock:
            self.check_owner()
            return events_and_mail.collect(self._bucket, self._job)

    def _probe(self, data: bytes) -> None:
        name = f"probe/{secrets.token_hex(8)}"
        self._bucket.create(name, data)
        self._bucket.delete([name])
