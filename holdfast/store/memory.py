"""A store in memory, for tests: `memory:NAME`. Gone with the process.

What is stored belongs to the name, not to the object: a second MemoryStore of the same name sees the same data, as a
restarted run would. An owner counts as dead when its object was closed or is no longer referred to.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import locks, refusals, sealed_file, segment_copy
from holdfast.store.base import Event, Identity, Mail, NewEvent, SegmentRef, Store
from holdfast.store.names import check_name

EVENTS_MAX = 10_000


@dataclass
class _Contents:
    identity: Identity | None = None
    token: int = 0
    owner: weakref.ref[MemoryStore] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, dict[str, bytes]] = field(default_factory=dict)
    segments: dict[tuple[str, str], bytes] = field(default_factory=dict)
    epochs: dict[str, dict[int, bytes]] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    next_event: int = 0
    mail: list[Mail] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


_by_name: dict[str, _Contents] = {}


def forget(name: str) -> None:
    """Drop what is stored under a name."""
    _by_name.pop(name, None)


class MemoryStore(Store):
    """A store that lives in this process."""

    def __init__(self, name: str = "") -> None:
        self.name = check_name("memory store", name or secrets.token_hex(8))
        self.url = self.place = f"memory:{self.name}"
        self._all = _by_name.setdefault(self.name, _Contents())

    # --- identity and ownership ---
    def _load_identity(self) -> Identity | None:
        return self._all.identity

    def _refuse_leftovers(self) -> None:
        """Whatever has this name is a store."""

    def _create(self, identity: Identity) -> None:
        with self._all.lock:
            self._all.identity = self._all.identity or identity

    def _claim(self, take_over: bool) -> OwnerToken:
        with self._all.lock:
            found = self.owner()
            if found and found["alive"] and not take_over:
                raise refusals.owned(self.url, found)
            self._all.token += 1
            self._all.owner = weakref.ref(self)
            self._all.info = {"token": self._all.token, **locks.who_am_i()}
            return OwnerToken(self._all.token)

    def check_owner(self) -> None:
        if self._held() != self._all.token:
            raise refusals.fenced(self.url, self._token)

    def _give_up(self) -> None:
        with self._writing():
            self._all.owner, self._all.info = None, {}

    def _let_go(self) -> None:
        """An object without a token is no owner."""

    def owner(self) -> Mapping[str, Any] | None:
        with self._all.lock:
            holder = self._all.owner() if self._all.owner else None
            alive = holder is not None and holder._token == self._all.token
            return {**self._all.info, "alive": alive} if self._all.info else None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._all.lock, super()._writing():
            self.check_owner()
            yield

    # --- entries and pairs ---
    def _create_entry(self, entry: str) -> None:
        self._all.entries.setdefault(entry, {})

    def _delete_entry(self, entry: str) -> None:
        self._delete(entry, self.keys(entry))
        self._all.entries.pop(entry, None)

    def entries(self) -> list[str]:
        with self._all.lock:
            return sorted(self._all.entries)

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        stored = self._entry(entry)
        for key in pairs:
            if (entry, key) in self._all.segments:
                raise refusals.is_segment(self.describe(entry, key))
        stored.update({key: bytes(value) for key, value in pairs.items()})

    def _get(self, entry: str, key: str) -> bytes | None:
        return self._all.entries.get(entry, {}).get(key)

    def _delete(self, entry: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._all.entries.get(entry, {}).pop(key, None)
            self._all.segments.pop((entry, key), None)

    def _keys(self, entry: str) -> list[str]:
        with self._all.lock:
            segments = [key for owner, key in self._all.segments if owner == entry]
            return [*self._all.entries.get(entry, {}), *segments]

    def _entry(self, entry: str) -> dict[str, bytes]:
        if check_name("entry", entry) not in self._all.entries:
            raise refusals.no_entry(self.url, entry)
        return self._all.entries[entry]

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        check_name("key", key)
        with self._writing():
            fp("ckpt.op.put")
            data = b"".join(segment_copy.pieces(local, crc, 1 << 20))
            if key in self._entry(entry):
                raise refusals.is_pair(self.describe(entry, key))
            if self._all.segments.setdefault((entry, key), data) != data:
                raise refusals.other_bytes(self.describe(entry, key))
            fp("ckpt.op.put_done")
            return SegmentRef(entry, key, len(data), crc)

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        data, where = self._all.segments.get((ref.entry, ref.key)), self.describe(ref.entry, ref.key)
        if data is None:
            raise sealed_file.damaged(where, "is missing, but an epoch refers to it")
        segment_copy.receive(ref, local, where, [data])

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        published = self._all.epochs.setdefault(region, {})
        refusals.refuse_stale(self.url, region, epoch, published)
        fp("ckpt.manifest.tmp_written")
        fp("ckpt.manifest.fsynced")
        published[epoch] = bytes(manifest)

    def _epochs(self, region: RegionName) -> list[int]:
        with self._all.lock:
            return list(self._all.epochs.get(region, {}))

    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None:
        return self._all.epochs.get(region, {}).get(epoch)

    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        self._all.epochs.get(region, {}).pop(epoch, None)

    # --- controller records, events, mailbox ---
    def _save_record(self, name: str, data: bytes) -> None:
        self._all.records[name] = bytes(data)

    def _load_record(self, name: str) -> bytes | None:
        return self._all.records.get(name)

    def _append_events(self, events: Sequence[NewEvent]) -> None:
        for kind, data in events:
            event = Event(self._all.next_event, time.time(), kind, copy.deepcopy(dict(data)))
            self._all.events.append(event)
            self._all.next_event += 1

    def events(self, after: int = -1) -> list[Event]:
        with self._all.lock:
            return [event for event in self._all.events if event.number > after]

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        self.read_identity()
        with self._all.lock:
            self._all.mail.append((command, copy.deepcopy(dict(data))))

    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        mails, self._all.mail = self._all.mail, []
        return mails, []

    def _probe(self, data: bytes) -> None:
        """Memory is taken as there."""
