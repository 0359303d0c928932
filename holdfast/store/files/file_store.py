"""The default store: plain files in a directory that people can look at, copy and back up.

    identity   owner/   tmp/   epochs/   entries/   records/   events/   mail/

The parts are neighbours of this module: lease (ownership and fencing), packs and segments (entries),
events_and_mail; docs/formats/store-files.md describes every file. What this module adds is the order of steps and
the translation of errors: whatever goes wrong in a write of an owner that was replaced is a FencedError.

Needs a file system with hard links, `flock`, and rename that is atomic: any local one, and NFS.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import ConfigError, FencedError, StoreError
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import base, identity_record, permissions, refusals, sealed_file
from holdfast.store.base import Event, Identity, LocalSegment, Mail, NewEvent, SegmentRef, Store
from holdfast.store.files import events_and_mail, lease, segments
from holdfast.store.files.events_and_mail import EventLog
from holdfast.store.files.packs import Chain
from holdfast.store.files.segments import link_segment, link_segments
from holdfast.store.names import check_name

__all__ = ["FileStore", "link_segment"]

DIRECTORIES = ("owner", "tmp", "epochs", "entries", "records", "events", "mail")
_NEW = ".identity-"
_MANIFEST = re.compile(r"(\d{12})\.manifest")


class FileStore(Store):
    """A store in a directory. Readers need neither `open` nor `acquire`."""

    executors_may_write = True

    def __init__(self, path: str | Path) -> None:
        self.root = Path(os.path.abspath(path))
        self.place = str(self.root)
        self.url = f"file:{self.root}"
        self.logs = self.root / "logs"
        self._claimed: lease.Lease | None = None
        self._chains: dict[str, Chain] = {}
        self._lock = threading.RLock()
        self._publishing = threading.Lock()
        self._events = EventLog(self.root / "events")

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        is_made = os.path.lexists(self.root / identity_record.NAME)
        if is_made:
            self._refuse_others()
        found = super().open(topology)
        if not is_made:
            self._refuse_others()
        for path in (self.root / name for name in DIRECTORIES):
            if not os.path.lexists(path):
                with durable.translate_os_errors(str(path)):
                    durable.make_directory(path)
            elif path.is_symlink() or not path.is_dir():
                raise sealed_file.damaged(path, "is not a directory")
        return found

    def _refuse_a_file(self) -> None:
        if self.root.exists() and not self.root.is_dir():
            raise ConfigError(
                f"{self.root} is a file, not a directory.",
                cure="Name the directory of a store, or for a new one an empty place.",
            )

    def _refuse_others(self) -> None:
        permissions.refuse_others([self.root.resolve(), *(self.root / name for name in DIRECTORIES)])

    def _load_identity(self) -> Identity | None:
        self._refuse_a_file()
        path = self.root / identity_record.NAME
        data = sealed_file.read_whole(path)
        if data is not None and data.split(b" ", 2)[1:2] == [b"log"]:
            raise ConfigError(
                f"{self.root} is a log, not a store.", cure=f"Look at it with: holdfast logs show {self.root}"
            )
        return None if data is None else identity_record.unseal(path, data)

    def _refuse_leftovers(self) -> None:
        names = sealed_file.list_directory(self.root)
        found = [name for name in names if name != "lost+found" and not name.startswith(_NEW)]
        # Looked for again: another process may have made the store meanwhile. It makes the identity first, so whatever
        # was listed without one has none.
        if self._load_identity() is None:
            identity_record.refuse_leftovers(self.root, found, DIRECTORIES)

    def _create(self, identity: Identity) -> None:
        path, staged = self.root / identity_record.NAME, self.root / f"{_NEW}{secrets.token_hex(8)}"
        with durable.translate_os_errors(str(path)):
            durable.make_directory(self.root)
            permissions.make_private(self.root)
            try:
                durable.write_staged(staged, identity_record.seal(identity))
                os.link(staged, path)
            except FileExistsError:
                pass
            finally:
                durable.remove_quietly(staged)
            durable.fsync_directory(self.root)

    def _claim(self, take_over: bool) -> OwnerToken:
        self._claimed = lease.acquire(self.root, self._job, take_over=take_over)
        self._chains.clear()  # others may have written since
        self._events = EventLog(self.root / "events")
        return self._claimed.token

    @property
    def _lease(self) -> lease.Lease:
        if self._claimed is None:
            raise refusals.not_owned(self.place)
        return self._claimed

    def check_owner(self) -> None:
        self._lease.check()

    def _give_up(self) -> None:
        self._lease.release()

    def _let_go(self) -> None:
        held, self._claimed = self._claimed, None
        if held is not None:
            held.abandon()

    def owner(self) -> Mapping[str, Any] | None:
        return lease.owner_info(self.root, self._job)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """If the change fails and the owner was replaced, that is why."""
        held = self._lease
        try:
            with super()._writing():
                yield
        except FencedError:
            raise
        except StoreError as error:
            if held.is_fenced():
                raise refusals.fenced(self.root, held.token) from error
            raise

    # --- entries and pairs ---
    def _create_entry(self, entry: str) -> None:
        held, path = self._lease, self._entry_path(entry)
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

    def _delete_entry(self, entry: str) -> None:
        self._lease.discard(self._entry_path(entry))
        with self._lock:
            self._chains.pop(entry, None)

    def has_entry(self, entry: str) -> bool:
        path = self._entry_path(check_name("entry", entry))
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise sealed_file.damaged(path, "is not a directory")
        return path.is_dir()

    def entries(self) -> list[str]:
        return sealed_file.list_directory(self.root / segments.ENTRIES)

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        if not self.has_entry(entry):
            raise refusals.no_entry(self.root, entry)
        for key in pairs:
            if os.path.lexists(self.segment_path(entry, key)):
                raise refusals.is_segment(self.segment_path(entry, key))
        if pairs:
            self._chain(entry).put(self._lease, pairs)

    def _get(self, entry: str, key: str) -> bytes | None:
        return self._chain(entry).get(key)

    def _delete(self, entry: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._lease.discard(self.segment_path(entry, key))
        self._chain(entry).delete(self._lease, keys)

    def _keys(self, entry: str) -> list[str]:
        names = sealed_file.list_directory(self._entry_path(entry))
        found = [n.removesuffix(segments.SUFFIX) for n in names if n.endswith(segments.SUFFIX)]
        return found + self._chain(entry).keys()

    def _chain(self, entry: str) -> Chain:
        with self._lock:
            if entry not in self._chains:
                self._chains[entry] = Chain(self._entry_path(entry), self._job)
            return self._chains[entry]

    def _entry_path(self, entry: str) -> Path:
        return self.root / segments.ENTRIES / entry

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        return self.put_segments(entry, [(key, local, crc)])[0]

    def put_segments(self, entry: str, segments: Sequence[LocalSegment]) -> list[SegmentRef]:
        token = self._held()
        chain = self._chain(check_name("entry", entry))
        for key, _, _ in segments:
            if chain.holds(check_name("key", key)):
                raise refusals.is_pair(self.describe(entry, key))
        return link_segments(self.root, token, entry, segments)

    def segment_writer(self) -> base.SegmentWriter:
        return partial(link_segment, str(self.root), int(self._held()))

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
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        path = self.manifest_path(region, epoch)
        data = sealed_file.seal("manifest", self._job, f"{region}/{epoch:012d}", manifest)
        with self._publishing:
            refusals.refuse_stale(self.place, region, epoch, self.epochs(region))
            durable.make_directory(path.parent)
            try:
                durable.write_file(path, data, temporary=self._lease.temporary(), failpoints="ckpt.manifest")
            except durable.NotDurableError:
                raise
            except Exception:
                # Looked up here too: what is in place must also be durable.
                if sealed_file.read_whole(path) != data:
                    raise
                durable.fsync_directory(path.parent)
            self.check_owner()

    def _epochs(self, region: RegionName) -> list[int]:
        names = sealed_file.list_directory(self.root / "epochs" / region)
        return [int(match[1]) for name in names if (match := _MANIFEST.fullmatch(name))]

    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None:
        path = self.manifest_path(region, epoch)
        return sealed_file.read_sealed(path, "manifest", self._job, f"{region}/{epoch:012d}")

    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        path = self.manifest_path(region, epoch)
        if self._lease.discard(path):
            durable.settle_name(path)  # what only this epoch needs may be deleted next

    def manifest_path(self, region: RegionName, epoch: Epoch) -> Path:
        return self.root / "epochs" / region / f"{epoch:012d}.manifest"

    # --- controller records, events, mailbox ---
    def _save_record(self, name: str, data: bytes) -> None:
        sealed = sealed_file.seal("record", self._job, name, data)
        durable.write_file(self.record_path(name), sealed, temporary=self._lease.temporary())

    def _load_record(self, name: str) -> bytes | None:
        return sealed_file.read_sealed(self.record_path(name), "record", self._job, name)

    def record_path(self, name: str) -> Path:
        return self.root / "records" / f"{name}.rec"

    def _append_events(self, events: Sequence[NewEvent]) -> None:
        self.events_dropped += self._events.append(self._lease, events)

    def _events_after(self, after: int) -> list[Event]:
        self._refuse_a_file()
        return self._events.read(after)

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        events_and_mail.post(self.root / "mail", self._job, command, data)

    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        self.check_owner()
        return events_and_mail.collect(self.root / "mail", self._job, self._lease)

    def _probe(self, data: bytes) -> None:
        probe = self._lease.temporary()
        try:
            durable.write_staged(probe, data)
        finally:
            durable.remove_quietly(probe)
