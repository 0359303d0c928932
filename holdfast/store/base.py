"""The store's contract: entries → keys → bytes, segments, fenced publish, ownership, event log, mailbox.

Document 004 §6 gives the two levels: an *entry* is a named collection, a *pair* is a key and a bytes value of at most
`value_limit` bytes (larger values are cut into chunks above this layer or by `put_segment`).

Concurrency: one owner (a driver) writes; readers (`holdfast status`) may look at any time. Methods may be called from
several threads of the owner. Every write method raises FencedError once a newer owner exists, at the latest in
`publish`. Errors are holdfast.errors.StoreError and below; a back end never leaks OSError or sqlite3.Error.

What every back end does the same way is done here: names and sizes are checked, the owner is known, failpoints are
passed and the operating system's errors become ours. A back end is the methods that are abstract.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import FencedError, HoldfastError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, RegionName
from holdfast.store import refusals
from holdfast.store.events.large import joined, parted
from holdfast.store.events.values import Event as Event
from holdfast.store.events.values import Mail as Mail
from holdfast.store.events.values import NewEvent as NewEvent
from holdfast.store.names import check_epoch, check_name, check_value
from holdfast.store.ownership import FORMAT as FORMAT
from holdfast.store.ownership import Identity as Identity
from holdfast.store.ownership import OwnedPlace

VALUE_LIMIT = 8 << 20
PROBE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A stored segment: where it is, how long, its CRC-32."""

    entry: str
    key: str
    size: int
    crc: int


SegmentWriter = Callable[[str, str, Path, int], SegmentRef]
"""As `Store.put_segment`: entry, key, local file, checksum."""
LocalSegment = tuple[str, Path, int]
"""Key, local file, checksum."""


class Store(OwnedPlace):
    """A place for epochs. See the module's docstring for what must hold; who may write: ownership.py."""

    url: str
    logs: Path | None = None
    """Where logs that belong to the store are kept; None: it has no directory for them."""
    value_limit = VALUE_LIMIT
    executors_may_write = False
    """True if tasks on executors can write segments (`segment_writer`); else the driver writes them."""
    pays_for_writes = False
    """True if every request costs money: the run writes and asks less often what only people look at."""
    commands_s = 10.0
    """Where requests cost money: so long an idle run may wait until it looks for commands."""
    events_dropped = 0
    """Events of this owner that could not be written."""

    def rest(self, is_idle: bool) -> None:
        """The owner tells, again and again, whether anything happens. A store that pays for signs of life may show fewer meanwhile."""

    # --- entries and pairs ---
    def create_entry(self, entry: str) -> None:
        check_name("entry", entry)
        with self._writing():
            self._create_entry(entry)

    @abstractmethod
    def _create_entry(self, entry: str) -> None: ...

    def delete_entry(self, entry: str) -> None:
        check_name("entry", entry)
        with self._writing():
            if not fp("gc.delete"):
                self._delete_entry(entry)

    @abstractmethod
    def _delete_entry(self, entry: str) -> None: ...

    def has_entry(self, entry: str) -> bool:
        return check_name("entry", entry) in self.entries()

    @abstractmethod
    def entries(self) -> list[str]:
        """Their names, sorted."""

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        """Write pairs durably, all of them when it returns. Existing keys are replaced."""
        check_name("entry", entry)
        for key, value in pairs.items():
            check_value(entry, check_name("key", key), value, self.value_limit)
        with self._writing():
            if not fp("ckpt.op.put"):
                self._put(entry, pairs)
                fp("ckpt.op.put_done")

    @abstractmethod
    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None: ...

    def get(self, entry: str, key: str) -> bytes | None:
        return self._get(check_name("entry", entry), check_name("key", key))

    @abstractmethod
    def _get(self, entry: str, key: str) -> bytes | None: ...

    def delete(self, entry: str, keys: Sequence[str]) -> None:
        """Delete pairs and segments; absent ones are fine."""
        check_name("entry", entry)
        for key in keys:
            check_name("key", key)
        with self._writing():
            if not fp("gc.delete"):
                self._delete(entry, keys)

    @abstractmethod
    def _delete(self, entry: str, keys: Sequence[str]) -> None: ...

    def keys(self, entry: str) -> list[str]:
        """Of pairs and segments, sorted."""
        return sorted(self._keys(check_name("entry", entry)))

    @abstractmethod
    def _keys(self, entry: str) -> Iterable[str]: ...

    # --- segments ---
    @abstractmethod
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        """Store an immutable local file durably under a new key (hard link where possible). The same bytes again are
        fine; other bytes under a key that exists are refused."""

    def put_segments(self, entry: str, segments: Sequence[LocalSegment]) -> list[SegmentRef]:
        """The same for several, all of them durable when it returns."""
        return [self.put_segment(entry, *segment) for segment in segments]

    def segment_writer(self) -> SegmentWriter:
        """What tasks on executors store segments with, under this owner's token and fence. Picklable."""
        raise StoreError(f"{self.url} is written by the driver only.")

    @abstractmethod
    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        """Bring a segment to `local`, verified: DamagedError naming the file if size or checksum differ."""

    def describe(self, entry: str, key: str) -> str:
        """Name of the place for error messages: a path, or URL and key."""
        return refusals.key_of(self.place, entry, key)

    # --- epochs ---
    def publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        """Make the manifest the newest epoch of the region, atomically, durably, and only as the current owner.
        Refuses (StoreError) an epoch that is not newer than the newest one."""
        check_name("region", region)
        check_epoch(epoch)
        try:
            with self._writing():
                self._publish(region, epoch, manifest)
        except HoldfastError:
            raise
        except Exception:
            # What the failure means is not known until one looks: in place is published.
            if epoch not in self.epochs(region) or self.manifest(region, epoch) != manifest:
                raise
            self.check_owner()

    @abstractmethod
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None: ...

    def epochs(self, region: RegionName) -> list[Epoch]:
        """Published epochs, oldest first."""
        check_name("region", region)
        return [Epoch(epoch) for epoch in sorted(self._epochs(region))]

    @abstractmethod
    def _epochs(self, region: RegionName) -> Iterable[int]: ...

    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        """The bytes as published (their inner checksum is the caller's to verify)."""
        check_name("region", region)
        check_epoch(epoch)
        found = self._manifest(region, epoch)
        if found is None:
            raise StoreError(f"{self.place}: epoch {epoch} of {region!r} was never published, or is deleted.")
        return found

    @abstractmethod
    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None: ...

    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        check_name("region", region)
        check_epoch(epoch)
        with self._writing():
            if not fp("gc.delete"):
                self._delete_epoch(region, epoch)

    @abstractmethod
    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None: ...

    # --- controller records, events, mailbox ---
    def save_record(self, name: str, data: bytes) -> None:
        """A small durable record that is replaced as a whole (controller state, source schemas, positions)."""
        check_name("record", name)
        with self._writing():
            self._save_record(name, data)

    @abstractmethod
    def _save_record(self, name: str, data: bytes) -> None: ...

    def load_record(self, name: str) -> bytes | None:
        return self._load_record(check_name("record", name))

    @abstractmethod
    def _load_record(self, name: str) -> bytes | None: ...

    def append_events(self, events: Sequence[NewEvent]) -> None:
        """Append to the bounded event log. Never fails a run: what cannot be written is dropped and counted."""
        try:
            with self._writing():
                self._append_events(parted(events))
        except (HoldfastError, TypeError, ValueError, RecursionError):
            self.events_dropped += len(events)

    @abstractmethod
    def _append_events(self, events: Sequence[NewEvent]) -> None: ...

    def events(self, after: int = -1) -> list[Event]:
        """The events behind a number, in order, without those lost to damage."""
        return list(joined(self._events_after(after)))

    @abstractmethod
    def _events_after(self, after: int) -> list[Event]: ...

    @abstractmethod
    def post(self, command: str, data: Mapping[str, Any]) -> None:
        """Leave a command for the owner (any process may: stop, resume, savepoint)."""

    def collect_mail(self) -> list[Mail]:
        """The owner takes what was posted, oldest first, each once."""
        with self._writing():
            mails, refused = self._collect_mail()
        if refused:
            self.append_events([("mail.refused", {"reason": reason}) for reason in refused])
        return mails

    @abstractmethod
    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        """What was posted, and a sentence for each mail that is damaged."""

    def accepts_writes(self) -> bool:
        """Probe: is there space again?"""
        self.check_owner()
        try:
            with self._writing():
                self._probe(bytes(PROBE_BYTES))
        except FencedError:
            raise
        except StoreError:
            return False
        return True

    @abstractmethod
    def _probe(self, data: bytes) -> None:
        """Write some bytes where nobody looks, and delete them."""
