"""Which files a source has seen: ordinals in listing order, sizes and times, and what of it goes into an epoch.

Invariants: an ordinal, once given, always means the same file; a file is known by size and modification time from
the moment it is listed until it is fully read; names of fully read files are never forgotten, so none is read twice.

In an epoch's record, names of fully read files are packed in blocks of `BLOCK_FILES`: a full block is compressed once
and never changes, so a record costs a few bytes per file read and no work. Files listed but not fully read (the *open
tail*) are packed with size and time.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import Any, NamedTuple

from holdfast.errors import InputError, StateError
from holdfast.sources.file_listing import Listing

BLOCK_FILES = 1000
_REMEDY = "Put the file back as it was, or start a new job with a new store."


class FileEntry(NamedTuple):
    """A file as it was when it was listed. `name` is relative to the root of the listing."""

    name: str
    size: int
    mtime_ns: int


def pack(values: list[Any]) -> str:
    """A list of plain data as compressed text."""
    return base64.b85encode(zlib.compress(json.dumps(values).encode(), 6)).decode("ascii")


def unpack(text: str) -> list[Any]:
    """What `pack` packed. Raises StateError if it is something else."""
    try:
        return list(json.loads(zlib.decompress(base64.b85decode(text))))
    except (ValueError, zlib.error) as error:
        raise StateError(
            "a file source's snapshot cannot be read.", cure="Restore an earlier epoch."
        ) from error


class FileMemory:
    """The files of one source. Used by one thread."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._only: set[str] | None = None
        self.forget()

    def forget(self) -> None:
        """Nothing was seen yet."""
        self._first = 0  # ordinal of entries[0]; the ones before are known by name only
        self._entries: list[FileEntry] = []
        self._names: set[str] = set()
        self._sealed: list[str] = []
        self._loose: list[str] = []  # names of fully read files in no sealed block yet

    @property
    def count(self) -> int:
        """One more than the last ordinal given."""
        return self._first + len(self._entries)

    def path(self, ordinal: int) -> str:
        """Where the file lies."""
        return self._listing.path(self.entry(ordinal).name)

    def entry(self, ordinal: int) -> FileEntry:
        """The file as listed. Only for files not fully read at the last `load`."""
        if not self._first <= ordinal < self.count:
            raise StateError(
                f"file number {ordinal} of {self._listing.root} was fully read before this position.",
                cure="Only slices cut since the last seek can be read.",
            )
        return self._entries[ordinal - self._first]

    def refresh(self) -> None:
        """List the place; new files get the next ordinals, in the order of their names."""
        found = self._listing.names() if self._only is None else self._only
        fresh = sorted(name for name in found if name not in self._names)
        for name in fresh:
            try:
                stat = os.stat(self._listing.path(name))
            except FileNotFoundError:
                continue  # vanished while listing: it was never ours
            self._entries.append(FileEntry(name, stat.st_size, stat.st_mtime_ns))
            self._names.add(name)

    def freeze(self) -> None:
        """From now on only files that exist now are ever seen."""
        if self._only is None:
            self._only = self._listing.names()
        self.refresh()

    def verify(self, first: int, last: int) -> None:
        """Refuse if one of the files first..last is not as it was listed."""
        for ordinal in range(first, last + 1):
            entry = self.entry(ordinal)
            path = self._listing.path(entry.name)
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                raise InputError(f"{path} vanished before it was fully read.", cure=_REMEDY) from None
            if stat.st_size != entry.size or stat.st_mtime_ns != entry.mtime_ns:
                was = f"{entry.size} bytes, modified at {entry.mtime_ns} ns"
                now = f"{stat.st_size} bytes, modified at {stat.st_mtime_ns} ns"
                raise InputError(f"{path} changed before it was fully read: {was}; now {now}.", cure=_REMEDY)

    def dump(self, consumed: int) -> dict[str, Any]:
        """The memory as plain data when the files before ordinal `consumed` are fully read."""
        known = len(self._sealed) * BLOCK_FILES + len(self._loose)
        self._loose += [entry.name for entry in self._entries[known - self._first : consumed - self._first]]
        while len(self._loose) >= BLOCK_FILES:
            self._sealed.append(pack(self._loose[:BLOCK_FILES]))
            del self._loose[:BLOCK_FILES]
        tail = self._entries[consumed - self._first :]
        return {
            "root": self._listing.root,
            "consumed": consumed,
            "blocks": list(self._sealed),
            "loose": pack(self._loose),
            "open": pack([list(entry) for entry in tail]),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Back to what `dump` returned, here or in a version that knew no roots."""
        self.forget()
        blocks, root = list(state["blocks"]), state.get("root")
        self._first = int(state["consumed"])
        stored = [*(name for block in blocks for name in unpack(block)), *unpack(state["loose"])]
        if len(stored) != self._first:
            raise StateError("a file source's snapshot contradicts itself.", cure="Restore an earlier epoch.")
        names = self._listing.adopt(stored, root)
        self._sealed = blocks if names == stored else []
        self._loose = names[len(self._sealed) * BLOCK_FILES :]
        opened = [FileEntry(*entry) for entry in unpack(state["open"])]
        at = self._listing.adopt((entry.name for entry in opened), root)
        self._entries = [entry._replace(name=name) for entry, name in zip(opened, at, strict=True)]
        self._names.update(names, at)
