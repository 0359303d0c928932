"""Stored segments as local files, for those who only look: verified before a byte of them is used."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from holdfast.durable import remove_quietly
from holdfast.state.keyed.segment import open_foreign
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef, Store
from holdfast.store.files.file_store import FileStore
from holdfast.store.files.segments import verify


class SegmentFiles:
    """Segments of one store. Those of a store of plain files are read where they lie; others are fetched into a
    temporary directory that goes with this object. Any thread may call it. `verified=False`: files that are read
    where they lie are verified by whoever reads their rows."""

    def __init__(self, store: Store, *, verified: bool = True) -> None:
        self._store = store
        self._verified = verified
        self._scratch: Path | None = None
        self._known: dict[SegmentRef, Path] = {}
        self._schemas: dict[SegmentRef, pa.Schema] = {}
        self._lock = threading.Lock()

    def path(self, ref: SegmentRef) -> Path:
        """A local file with the segment's bytes. DamagedError naming the place if they are not those written."""
        with self._lock:
            known = self._known.get(ref)
        if known is None:
            known = self._brought(ref)
            with self._lock:
                self._known[ref] = known
        return known

    def table(self, ref: SegmentRef) -> pa.Table:
        return open_foreign(self.path(ref), self._store.describe(ref.entry, ref.key))

    def schema(self, ref: SegmentRef) -> pa.Schema:
        if ref not in self._schemas:
            self._schemas[ref] = self.table(ref).schema
        return self._schemas[ref]

    def check(self, ref: SegmentRef, read_frame: Callable[[Path], object]) -> None:
        """The same look at every byte, and at what frames the rows; nothing is kept."""
        path = self._brought(ref)
        try:
            read_frame(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            place = self._store.describe(ref.entry, ref.key)
            what = f"has the right checksum, but cannot be read: {error}"
            raise sealed_file.damaged(place, what) from error
        finally:
            if not isinstance(self._store, FileStore):
                remove_quietly(path)

    def _brought(self, ref: SegmentRef) -> Path:
        if isinstance(self._store, FileStore):
            path = self._store.segment_path(ref.entry, ref.key)
            if self._verified:
                verify(path, ref)
            return path
        local = self._directory() / secrets.token_hex(8)
        self._store.fetch_segment(ref, local)
        return local

    def _directory(self) -> Path:
        with self._lock:
            if self._scratch is None:
                self._scratch = Path(tempfile.mkdtemp(prefix="holdfast-look-"))
            return self._scratch

    def close(self) -> None:
        with self._lock:
            scratch, self._scratch = self._scratch, None
            self._known.clear()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    def __enter__(self) -> SegmentFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
