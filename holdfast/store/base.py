"""The store's contract: entries → keys → bytes, segments, fenced publish, ownership, event log, mailbox.

Document 004 §6 gives the two levels: an *entry* is a named collection, a *pair* is a key and a bytes value of at most
`value_limit` bytes (larger values are cut into chunks above this layer or by `put_segment`).

Concurrency: one owner (a driver) writes; readers (`holdfast status`) may look at any time. Methods may be called from
several threads of the owner. Every write method raises FencedError once a newer owner exists, at the latest in
`publish`. Errors are holdfast.errors.StoreError and below; a back end never leaks OSError or sqlite3.Error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import StoreError
from holdfast.ids import Epoch, OwnerToken, RegionName

FORMAT = 1
"""Number of the store's layout. A store with a higher number is refused untouched."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The store's first record. Written once, never re-minted: a missing one beside data is damage."""

    job_id: str
    topology: str
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A stored segment: where it is, how long, its CRC-32."""

    entry: str
    key: str
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log. `number` increases; `wall` is for people."""

    number: int
    wall: float
    kind: str
    data: Mapping[str, Any]


SegmentWriter = Callable[[str, str, Path, int], SegmentRef]
"""As `Store.put_segment`: entry, key, local file, checksum."""
LocalSegment = tuple[str, Path, int]
"""Key, local file, checksum."""


class Store(ABC):
    """A place for epochs. See the module's docstring for what must hold."""

    url: str
    value_limit: int
    executors_may_write: bool
    """True if tasks on executors can write segments (`segment_writer`); else the driver writes them."""

    # --- identity and ownership ---
    @abstractmethod
    def open(self, topology: str) -> Identity:
        """Create the store or check it: job identity, format. MismatchError for another topology or newer format,
        DamagedError if the identity is missing while data exists."""

    @abstractmethod
    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        """Become the owner. A provably dead owner is replaced at once; a live one raises OwnedError naming it,
        unless `take_over`, which fences it."""

    @abstractmethod
    def check_owner(self) -> None:
        """Raises FencedError if a newer owner exists."""

    @abstractmethod
    def release(self) -> None:
        """Give ownership up (clean stop)."""

    @abstractmethod
    def close(self) -> None: ...

    # --- entries and pairs ---
    @abstractmethod
    def create_entry(self, entry: str) -> None: ...

    @abstractmethod
    def delete_entry(self, entry: str) -> None: ...

    @abstractmethod
    def has_entry(self, entry: str) -> bool: ...

    @abstractmethod
    def entries(self) -> list[str]: ...

    @abstractmethod
    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        """Write pairs durably, all of them when it returns. Existing keys are replaced."""

    @abstractmethod
    def get(self, entry: str, key: str) -> bytes | None: ...

    @abstractmethod
    def delete(self, entry: str, keys: Sequence[str]) -> None: ...

    @abstractmethod
    def keys(self, entry: str) -> list[str]: ...

    # --- segments ---
    @abstractmethod
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        """Store an immutable local file durably under a new key (hard link where possible)."""

    def put_segments(self, entry: str, segments: Sequence[LocalSegment]) -> list[SegmentRef]:
        """The same for several, all of them durable when it returns."""
        return [self.put_segment(entry, *segment) for segment in segments]

    def segment_writer(self) -> SegmentWriter:
        """What tasks on executors store segments with, under this owner's token and fence. Picklable."""
        raise StoreError(f"{self.url} is written by the driver only.")

    @abstractmethod
    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        """Bring a segment to `local`, verified: DamagedError naming the file if size or checksum differ."""

    @abstractmethod
    def describe(self, entry: str, key: str) -> str:
        """Name of the place for error messages: a path, or URL and key."""

    # --- epochs ---
    @abstractmethod
    def publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        """Make the manifest the newest epoch of the region, atomically, durably, and only as the current owner.
        Refuses (StoreError) an epoch that is not newer than the newest one."""

    @abstractmethod
    def epochs(self, region: RegionName) -> list[Epoch]:
        """Published epochs, oldest first."""

    @abstractmethod
    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        """The bytes as published (their inner checksum is the caller's to verify)."""

    @abstractmethod
    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None: ...

    # --- controller records, events, mailbox ---
    @abstractmethod
    def save_record(self, name: str, data: bytes) -> None:
        """A small durable record that is replaced as a whole (controller state, source schemas, positions)."""

    @abstractmethod
    def load_record(self, name: str) -> bytes | None: ...

    @abstractmethod
    def append_events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Append to the bounded event log. Never fails a run: what cannot be written is dropped and counted."""

    @abstractmethod
    def events(self, after: int = -1) -> list[Event]: ...

    @abstractmethod
    def post(self, command: str, data: Mapping[str, Any]) -> None:
        """Leave a command for the owner (any process may: stop, resume, savepoint)."""

    @abstractmethod
    def collect_mail(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The owner takes what was posted, oldest first, each once."""

    @abstractmethod
    def owner(self) -> Mapping[str, Any] | None:
        """Who owns the store now: token, pid, host, since, alive. For status and error messages."""

    @abstractmethod
    def accepts_writes(self) -> bool:
        """Probe: is there space again?"""
