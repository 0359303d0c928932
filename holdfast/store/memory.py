"""A store in memory, for tests: `memory:NAME`. Gone with the process.

What is stored belongs to the name, not to the object: a second MemoryStore of the same name sees the same data, as a
restarted run would. An owner counts as dead when its object was closed or is no longer referred to.
"""

from __future__ import annotations

import copy
import os
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

from holdfast import durable
from holdfast.errors import FencedError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import locks, sealed_file
from holdfast.store.base import Event, Identity, SegmentRef, Store
from holdfast.store.files.identity import check_topology
from holdfast.store.names import check_epoch, check_name, check_value

VALUE_LIMIT = 8 << 20
EVENTS_MAX = 10_000


@dataclass
class _Contents:
    identity: Identity | None = None
    token: int = 0
    owner: weakref.ref[MemoryStore] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, dict[str, bytes]] = field(default_factory=dict)
    segments: dict[tuple[str, str], tuple[bytes, int]] = field(default_factory=dict)
    epochs: dict[str, dict[int, bytes]] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    next_event: int = 0
    mail: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


_by_name: dict[str, _Contents] = {}


def forget(name: str) -> None:
    """Drop what is stored under a name."""
    _by_name.pop(name, None)


class MemoryStore(Store):
    """A store that lives in this process."""

    def __init__(self, name: str = "") -> None:
        self.name = check_name("memory store", name or secrets.token_hex(8))
        self.url = f"memory:{self.name}"
        self.value_limit = VALUE_LIMIT
        self.executors_may_write = False
        self.events_dropped = 0
        self._all = _by_name.setdefault(self.name, _Contents())
        self._token: OwnerToken | None = None

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        with self._all.lock:
            if self._all.identity is None:
                self._all.identity = Identity(secrets.token_hex(16), topology)
            check_topology(self.url, self._all.identity, topology)
            return self._all.identity

    def read_identity(self) -> Identity:
        """The identity of a store that exists, for readers that do not know its topology."""
        if self._all.identity is None:
            raise StoreError(
                f"there is no store at {self.url}.", cure="A run creates its store when it starts."
            )
        return self._all.identity

    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        self.read_identity()
        with durable.translate_os_errors(self.url), self._all.lock:
            if self._token is not None:
                raise StoreError(
                    f"{self.url} is already owned by this very object.", cure="Release it first."
                )
            fp("lease.acquire")
            found = self.owner()
            if found and found["alive"] and not take_over:
                raise locks.owned(self.url, dict(found))
            self._all.token += 1
            self._token = OwnerToken(self._all.token)
            self._all.owner = weakref.ref(self)
            self._all.info = {"token": self._token, **locks.who_am_i()}
            fp("lease.acquired")
            return self._token

    def check_owner(self) -> None:
        if self._token is None:
            raise StoreError(
                f"{self.url} is not owned by this run.", cure="Acquire the store before writing."
            )
        if self._token != self._all.token:
            raise FencedError(f"{self.url} has a newer owner than this run (token {self._token}).")

    def release(self) -> None:
        with self._all.lock:
            if self._token is not None and self._token == self._all.token:
                self._all.owner, self._all.info = None, {}
            self._token = None

    def close(self) -> None:
        """Let go of everything. Without `release` before, the store looks as after a crash."""
        self._token = None

    def owner(self) -> Mapping[str, Any] | None:
        with self._all.lock:
            holder = self._all.owner() if self._all.owner else None
            alive = holder is not None and holder._token == self._all.token
            return {**self._all.info, "alive": alive} if self._all.info else None

    # --- entries and pairs ---
    def create_entry(self, entry: str) -> None:
        with self._changing():
            self._all.entries.setdefault(check_name("entry", entry), {})

    def delete_entry(self, entry: str) -> None:
        with self._changing():
            if fp("gc.delete"):
                return
            self._all.entries.pop(check_name("entry", entry), None)
            for place in [p for p in self._all.segments if p[0] == entry]:
                del self._all.segments[place]

    def has_entry(self, entry: str) -> bool:
        return check_name("entry", entry) in self._all.entries

    def entries(self) -> list[str]:
        with self._all.lock:
            return sorted(self._all.entries)

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        for key, value in pairs.items():
            check_value(entry, check_name("key", key), value, self.value_limit)
        with self._changing():
            if fp("ckpt.op.put"):
                return
            stored = self._entry(entry)
            for key in pairs:
                if (entry, key) in self._all.segments:
                    raise StoreError(f"{self.describe(entry, key)} is a segment; a pair cannot replace it.")
            stored.update({key: bytes(value) for key, value in pairs.items()})
            fp("ckpt.op.put_done")

    def get(self, entry: str, key: str) -> bytes | None:
        return self._all.entries.get(check_name("entry", entry), {}).get(check_name("key", key))

    def delete(self, entry: str, keys: Sequence[str]) -> None:
        with self._changing():
            if fp("gc.delete"):
                return
            for key in keys:
                self._all.entries.get(check_name("entry", entry), {}).pop(check_name("key", key), None)
                self._all.segments.pop((entry, key), None)

    def keys(self, entry: str) -> list[str]:
        with self._all.lock:
            pairs = list(self._all.entries.get(check_name("entry", entry), {}))
            return sorted(pairs + [key for owner, key in self._all.segments if owner == entry])

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        check_name("key", key)
        with self._changing():
            fp("ckpt.op.put")
            data = sealed_file.read_whole(Path(local))
            if data is None or durable.checksum(data) != crc:
                raise StoreError(f"{local} is missing or does not have the checksum its writer gave.")
            if key in self._entry(entry):
                raise StoreError(f"{self.describe(entry, key)} holds a pair; a segment cannot replace it.")
            if self._all.segments.setdefault((entry, key), (data, crc))[0] != data:
                raise StoreError(
                    f"{self.describe(entry, key)} exists with other bytes; it is never overwritten."
                )
            fp("ckpt.op.put_done")
            return SegmentRef(entry, key, len(data), crc)

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        data, crc = self._all.segments.get((ref.entry, ref.key), (b"", None))
        if crc is None or (crc, len(data)) != (ref.crc, ref.size):
            place = Path(self.describe(ref.entry, ref.key))
            raise sealed_file.damaged(place, "is missing or differs from its reference")
        with durable.translate_os_errors(str(local)):
            staged = local.with_name(f".{local.name}.{os.getpid()}")
            staged.write_bytes(data)
            os.replace(staged, local)

    def describe(self, entry: str, key: str) -> str:
        return f"{self.url} ({entry}/{key})"

    # --- epochs ---
    def publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        with self._changing():
            published = self._all.epochs.setdefault(check_name("region", region), {})
            newest = max(published, default=None)
            if newest is not None and check_epoch(epoch) <= newest:
                raise StoreError(
                    f"epoch {epoch} of region {region!r} is not newer than {newest}, the newest one in {self.url}."
                )
            fp("ckpt.manifest.tmp_written")
            fp("ckpt.manifest.fsynced")
            published[check_epoch(epoch)] = bytes(manifest)

    def epochs(self, region: RegionName) -> list[Epoch]:
        with self._all.lock:
            return [Epoch(e) for e in sorted(self._all.epochs.get(check_name("region", region), {}))]

    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        found = self._all.epochs.get(check_name("region", region), {}).get(epoch)
        if found is None:
            raise StoreError(f"{self.url}: epoch {epoch} of {region!r} was never published, or is deleted.")
        return found

    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        with self._changing():
            if not fp("gc.delete"):
                self._all.epochs.get(check_name("region", region), {}).pop(epoch, None)

    # --- controller records, events, mailbox ---
    def save_record(self, name: str, data: bytes) -> None:
        with self._changing():
            self._all.records[check_name("record", name)] = bytes(data)

    def load_record(self, name: str) -> bytes | None:
        return self._all.records.get(check_name("record", name))

    def append_events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        try:
            with self._changing():
                for kind, data in events:
                    event = Event(self._all.next_event, time.time(), kind, copy.deepcopy(dict(data)))
                    self._all.events.append(event)
                    self._all.next_event += 1
        except StoreError:
            self.events_dropped += len(events)

    def events(self, after: int = -1) -> list[Event]:
        with self._all.lock:
            return [event for event in self._all.events if event.number > after]

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        self.read_identity()
        with self._all.lock:
            self._all.mail.append((command, copy.deepcopy(dict(data))))

    def collect_mail(self) -> list[tuple[str, Mapping[str, Any]]]:
        with self._changing():
            mail, self._all.mail = self._all.mail, []
            return mail

    def accepts_writes(self) -> bool:
        self.check_owner()
        return True

    # --- helpers ---
    @contextmanager
    def _changing(self) -> Iterator[None]:
        with durable.translate_os_errors(self.url), self._all.lock:
            self.check_owner()
            yield

    def _entry(self, entry: str) -> dict[str, bytes]:
        if check_name("entry", entry) not in self._all.entries:
            raise StoreError(f"{self.url} has no entry {entry!r}.", cure="Create the entry first.")
        return self._all.entries[entry]
