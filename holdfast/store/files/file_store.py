"""The default store: plain files in a directory that people can look at, copy and back up.

    identity   owner/   tmp/   epochs/   entries/   records/   events/   mail/

The parts are neighbours of this module: identity, lease (ownership and fencing), packs and segments (entries),
eventlog, mailbox; docs/formats/store-files.md describes every file. What this module adds is the order of steps and
the translation of errors: whatever goes wrong in a write of an owner that was replaced is a FencedError.

Needs a file system with hard links, `flock`, and rename that is atomic: any local one, and NFS.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import FencedError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import sealed_file
from holdfast.store.base import Event, Identity, LocalSegment, SegmentRef, SegmentWriter, Store
from holdfast.store.files import identity, lease, mailbox, segments
from holdfast.store.files.event_log import EventLog
from holdfast.store.files.packs import Chain
from holdfast.store.files.segments import link_segment, link_segments
from holdfast.store.names import check_epoch, check_name, check_value

__all__ = ["FileStore", "link_segment"]

VALUE_LIMIT = 8 << 20
PROBE_BYTES = 256 << 10
_MANIFEST = re.compile(r"(\d{12})\.manifest")


class FileStore(Store):
    """A store in a directory. Readers need neither `open` nor `acquire`."""

    def __init__(self, path: str | Path) -> None:
        self.root = Path(os.path.abspath(path))
        self.url = f"file:{self.root}"
        self.value_limit = VALUE_LIMIT
        self.executors_may_write = True
        self._identity: Identity | None = None
        self._lease: lease.Lease | None = None
        self._chains: dict[str, Chain] = {}
        self._lock = threading.RLock()
        self._publishing = threading.Lock()
        self._events = EventLog(self.root / "events")

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        self._identity = identity.open_or_create(self.root, topology)
        return self._identity

    def read_identity(self) -> Identity:
        """The identity of a store that exists, for readers that do not know its topology."""
        if self._identity is None:
            self._identity = identity.require(self.root)
        return self._identity

    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        if self._lease is not None:
            raise StoreError(f"{self.root} is already owned by this very object.", cure="Release it first.")
        job = self.read_identity().job_id
        with durable.translate_os_errors(str(self.root)):
            self._lease = lease.acquire(self.root, job, take_over=take_over)
        self._chains.clear()  # others may have written since
        self._events = EventLog(self.root / "events")
        return self._lease.token

    @property
    def token(self) -> OwnerToken:
        """The token this object owns the store under: executors write with it."""
        return self._held().token

    def check_owner(self) -> None:
        self._held().check()

    def release(self) -> None:
        held, self._lease = self._lease, None
        if held is not None:
            with durable.translate_os_errors(str(self.root)):
                held.release()

    def close(self) -> None:
        """Let go of everything. Without `release` before, the store looks as after a crash."""
        held, self._lease = self._lease, None
        if held is not None:
            held.abandon()

    def owner(self) -> Mapping[str, Any] | None:
        return lease.owner_info(self.root, self.read_identity().job_id)

    # --- entries and pairs ---
    def create_entry(self, entry: str) -> None:
        path = self._entry_path(entry)
        with self._writing(path) as held:
            if self.has_entry(entry):
                held.check()
                return
            staged = held.temporary()
            staged.mkdir(mode=durable.DIRECTORY_MODE)
            try:
                os.chmod(staged, durable.DIRECTORY_MODE)
                os.rename(staged, path)
            except OSError:
                lease.remove_tree(staged)
                raise
            durable.settle_name(path)

    def delete_entry(self, entry: str) -> None:
        path = self._entry_path(entry)
        with self._writing(path) as held:
            if fp("gc.delete"):
                return
            held.discard(path)
        with self._lock:
            self._chains.pop(entry, None)

    def has_entry(self, entry: str) -> bool:
        path = self._entry_path(entry)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise sealed_file.damaged(path, "is not a directory")
        return path.is_dir()

    def entries(self) -> list[str]:
        return sealed_file.list_directory(self.root / segments.ENTRIES)

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        for key, value in pairs.items():
            check_value(entry, check_name("key", key), value, self.value_limit)
        with self._writing(self._entry_path(entry)) as held:
            if fp("ckpt.op.put"):
                return
            self._require_entry(entry)
            for key in pairs:
                if os.path.lexists(self.segment_path(entry, key)):
                    raise StoreError(
                        f"{self.segment_path(entry, key)} is a segment; a pair cannot replace it."
                    )
            if pairs:
                self._chain(entry).put(held, pairs)
            fp("ckpt.op.put_done")

    def get(self, entry: str, key: str) -> bytes | None:
        check_name("key", key)
        return self._chain(entry).get(key)

    def delete(self, entry: str, keys: Sequence[str]) -> None:
        for key in keys:
            check_name("key", key)
        with self._writing(self._entry_path(entry)) as held:
            if fp("gc.delete"):
                return
            for key in keys:
                held.discard(self.segment_path(entry, key))
            self._chain(entry).delete(held, keys)

    def keys(self, entry: str) -> list[str]:
        names = sealed_file.list_directory(self._entry_path(entry))
        found = [n.removesuffix(segments.SUFFIX) for n in names if n.endswith(segments.SUFFIX)]
        return sorted(found + self._chain(entry).keys())

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return self.put_segments(entry, [(key, local, crc)])[0]

    def put_segments(self, entry: str, segments: Sequence[LocalSegment]) -> list[SegmentRef]:
        held = self._held()
        for key, _, _ in segments:
            if self._chain(entry).holds(check_name("key", key)):
                raise StoreError(
                    f"{self.describe(entry, key)} holds a pair {key!r}; a segment cannot replace it."
                )
        return link_segments(self.root, held.token, entry, segments)

    def segment_writer(self) -> SegmentWriter:
        return partial(link_segment, str(self.root), int(self.token))

    def segment_path(self, entry: str, key: str) -> Path:
        """Where a segment lies: executors read and link there."""
        return segments.segment_path(self.root, entry, key)

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        segments.fetch(self.segment_path(ref.entry, ref.key), ref, local)

    def describe(self, entry: str, key: str) -> str:
        path = self.segment_path(entry, key)
        if os.path.lexists(path):
            return str(path)
        try:
            return str(self._chain(entry).file_of(key) or path.with_suffix(""))
        except StoreError:
            return str(path.with_suffix(""))

    # --- epochs ---
    def publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        path = self._manifest_path(region, epoch)
        data = sealed_file.seal("manifest", self.read_identity().job_id, f"{region}/{epoch:012d}", manifest)
        with self._publishing, self._writing(path) as held:
            newest = max(self.epochs(region), default=None)
            if newest is not None and epoch <= newest:
                raise StoreError(
                    f"epoch {epoch} of region {region!r} is not newer than {newest}, the newest one in {self.root}.",
                    cure="An epoch is published once; start the run again to go on after the newest one.",
                )
            durable.make_directory(path.parent)
            try:
                durable.write_file(path, data, temporary=held.temporary(), failpoints="ckpt.manifest")
            except durable.NotDurableError:
                raise
            except Exception:
                # What the failure means is not known until one looks: in place is published.
                if sealed_file.read_whole(path) != data:
                    raise
                durable.fsync_directory(path.parent)
            held.check()

    def epochs(self, region: RegionName) -> list[Epoch]:
        names = sealed_file.list_directory(self.root / "epochs" / check_name("region", region))
        return [Epoch(int(match[1])) for name in names if (match := _MANIFEST.fullmatch(name))]

    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        path = self._manifest_path(region, epoch)
        job = self.read_identity().job_id
        data = sealed_file.read_sealed(path, "manifest", job, f"{region}/{epoch:012d}")
        if data is None:
            raise StoreError(f"{path} does not exist: epoch {epoch} was never published, or is deleted.")
        return data

    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        path = self._manifest_path(region, epoch)
        with self._writing(path) as held:
            if not fp("gc.delete") and held.discard(path):
                durable.settle_name(path)  # what only this epoch needs may be deleted next

    # --- controller records, events, mailbox ---
    def save_record(self, name: str, data: bytes) -> None:
        path = self._record_path(name)
        with self._writing(path) as held:
            bytes_ = sealed_file.seal("record", self.read_identity().job_id, name, data)
            durable.write_file(path, bytes_, temporary=held.temporary())

    def load_record(self, name: str) -> bytes | None:
        return sealed_file.read_sealed(self._record_path(name), "record", self.read_identity().job_id, name)

    def append_events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        if self._lease is None:
            self._events.dropped += len(events)
        else:
            self._events.append(self._lease, events)

    @property
    def events_dropped(self) -> int:
        """Events of this owner that could not be written."""
        return self._events.dropped

    def events(self, after: int = -1) -> list[Event]:
        return self._events.read(after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        mailbox.post(self.root / "mail", self.read_identity().job_id, command, data)

    def collect_mail(self) -> list[tuple[str, Mapping[str, Any]]]:
        directory = self.root / "mail"
        with self._writing(directory) as held:
            held.check()
            mails, refused = mailbox.collect(directory, self.read_identity().job_id, held)
        if refused:
            self.append_events([("mail.refused", {"reason": reason}) for reason in refused])
        return mails

    def accepts_writes(self) -> bool:
        held = self._held()
        probe = held.temporary()
        try:
            durable.write_staged(probe, bytes(PROBE_BYTES))
        except OSError:
            held.check()
            return False
        finally:
            durable.remove_quietly(probe)
        return True

    # --- helpers ---
    @contextmanager
    def _writing(self, what: Path) -> Iterator[lease.Lease]:
        """The lease, for the length of one change. If the change fails and the owner was replaced, that is why."""
        held = self._held()
        try:
            with durable.translate_os_errors(str(what)):
                yield held
        except FencedError:
            raise
        except StoreError as error:
            if held.is_fenced():
                raise lease.fenced(self.root, held.token) from error
            raise

    def _held(self) -> lease.Lease:
        if self._lease is None:
            raise StoreError(
                f"{self.root} is not owned by this run.", cure="Acquire the store before writing."
            )
        return self._lease

    def _chain(self, entry: str) -> Chain:
        with self._lock:
            if entry not in self._chains:
                self._chains[entry] = Chain(self._entry_path(entry), self.read_identity().job_id)
            return self._chains[entry]

    def _require_entry(self, entry: str) -> None:
        if not self.has_entry(entry):
            raise StoreError(f"{self.root} has no entry {entry!r}.", cure="Create the entry first.")

    def _entry_path(self, entry: str) -> Path:
        return self.root / segments.ENTRIES / check_name("entry", entry)

    def _manifest_path(self, region: RegionName, epoch: Epoch) -> Path:
        return self.root / "epochs" / check_name("region", region) / f"{check_epoch(epoch):012d}.manifest"

    def _record_path(self, name: str) -> Path:
        return self.root / "records" / f"{check_name('record', name)}.rec"
