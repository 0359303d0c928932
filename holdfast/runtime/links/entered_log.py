"""Batches that an element has taken over the border of its region, or that were on their way to it, in the store: what the
next run gives it again. See docs/formats/entered.md.

    entry <element>@~entered
    key   r<run>-n<number>          one write: batches of all connections, in order; small files inside
    key   r<run>-n0000000000        batches of earlier runs that do not count any more: their sender sends them again
    key   r<run>-n<number>=<file>   a larger file

What must hold: a batch is recorded before a step works on it (`.replayable()`), or while its region is parked, or when a run ends in order; it is
deleted when an epoch covers it and the next one is published too, so that a damaged newest epoch costs nothing.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.stored_names import entered_entry, entered_key
from holdfast.durable import checksum, checksum_file
from holdfast.errors import DamagedError, StateError
from holdfast.failpoints import fp
from holdfast.ids import ConnectionId, ElementName
from holdfast.runtime.links.batch import Batch, batch_of
from holdfast.runtime.links.connection import Parcel
from holdfast.state.values import codec
from holdfast.store.base import SegmentRef, Store

INLINE_BYTES = 256 << 10
"""Files of one write that are together no larger than this lie inside of it: one durable write for a step with many batches."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A recorded batch: its last row has the number `end` on its connection."""

    connection: ConnectionId
    end: int
    rows: int
    files: tuple[tuple[str, bytes | SegmentRef], ...]


@dataclass(frozen=True, slots=True)
class Written:
    """One write: its keys, and how far it reaches on each connection."""

    keys: tuple[str, ...]
    ends: Mapping[ConnectionId, int]


class EnteredLog:
    """Of one element. `record` may be called by its thread and by its region's, or when they have ended; `published` by its region's."""

    def __init__(self, store: Store, element: ElementName, run: int, live: Path) -> None:
        self._store = store
        self._entry = entered_entry(element)
        self._run = run
        self._live = live
        self._numbers = itertools.count(1)
        self._fetched = itertools.count(1)
        self._written: list[Written] = []
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._covered: Mapping[ConnectionId, int] = {}
        """Rows that the newest published epoch covers; at the next one, what holds them goes."""
        self.recorded: dict[ConnectionId, dict[int, int]] = {}
        """Of each connection: numbers of the last rows of recorded batches → their rows. For the accounts."""
        self._known: dict[tuple[str, ...], int] = {}
        """Files of recorded batches in the live directory, with the number of the last row."""

    # --- writing ------------------------------------------------------------------------------------------------

    def is_recorded(self, batch: Batch) -> bool:
        return batch.files in self._known

    def record(self, parcels: Mapping[ConnectionId, Sequence[Parcel]]) -> bool:
        """Make batches durable that are not recorded yet, in one write. False if there are none."""
        with self._writing:
            return self._recorded(parcels)

    def _recorded(self, parcels: Mapping[ConnectionId, Sequence[Parcel]]) -> bool:
        new = [
            (id, each) for id, found in parcels.items() for each in found if not self.is_recorded(each.batch)
        ]
        if not new:
            return False
        fp("entered.record")
        self._create()
        key = entered_key(self._run, next(self._numbers))
        is_small = sum(parcel.batch.bytes for _, parcel in new) <= INLINE_BYTES
        files = [file for _, parcel in new for file in parcel.batch.files]
        stored = self._inside(files) if is_small else self._beside(key, files)
        data = codec.encode(
            [[id, p.end, p.batch.rows, [stored[file] for file in p.batch.files]] for id, p in new]
        )
        self._store.put(self._entry, {key: checksum(data).to_bytes(4, "big") + data})
        fp("entered.recorded")
        beside = () if is_small else tuple(stored[file][1][1] for file in dict.fromkeys(files))
        with self._lock:
            for id, parcel in new:
                self._note(id, parcel.end, parcel.batch.rows)
                self._known[parcel.batch.files] = parcel.end
            self._written.append(Written((key, *beside), {id: parcel.end for id, parcel in new}))
        return True

    def drop(self, entered: Sequence[Entered]) -> None:
        """A run begins, and these are not to be given again, now or later."""
        if not entered:
            return
        data = codec.encode([[each.connection, each.end] for each in entered])
        key = entered_key(self._run, 0)
        self._store.put(self._entry, {key: checksum(data).to_bytes(4, "big") + data})
        ends: dict[ConnectionId, int] = {}
        for each in entered:
            ends[each.connection] = max(each.end, ends.get(each.connection, 0))
            self.recorded[each.connection].pop(each.end, None)
        self._written.append(Written((key,), ends))

    def _create(self) -> None:
        if not self._written and not self._store.has_entry(self._entry):
            self._store.create_entry(self._entry)

    def _note(self, id: ConnectionId, end: int, rows: int) -> None:
        # Batches without rows, but with times, end where the one before them does.
        known = self.recorded.setdefault(id, {})
        known[end] = known.get(end, 0) + rows

    def _inside(self, files: Sequence[str]) -> dict[str, list[Any]]:
        return {file: [Path(file).name, Path(file).read_bytes()] for file in files}

    def _beside(self, key: str, files: Sequence[str]) -> dict[str, list[Any]]:
        names = {file: f"{key}={Path(file).name}" for file in files}
        found = [(name, Path(file), checksum_file(Path(file))[0]) for file, name in names.items()]
        refs = self._store.put_segments(self._entry, found)
        return {
            file: [Path(file).name, [ref.entry, ref.key, ref.size, ref.crc]]
            for file, ref in zip(names, refs, strict=True)
        }

    def published(self, covered: Mapping[ConnectionId, int]) -> None:
        """An epoch is published, or found when the run begins, that covers so many rows of each connection: what the one before
        it covered goes."""
        before, self._covered = self._covered, covered
        if before:
            self._forget(before)

    @property
    def waits_for_epoch(self) -> bool:
        """Something goes when the next epoch is published, even if nothing is new in that."""
        with self._lock:
            return any(self._is_over(each, self._covered) for each in self._written)

    @staticmethod
    def _is_over(written: Written, covered: Mapping[ConnectionId, int]) -> bool:
        return all(id not in covered or end <= covered[id] for id, end in written.ends.items())

    def _forget(self, covered: Mapping[ConnectionId, int]) -> None:
        """Delete what an epoch covers, and what belongs to connections that are no more."""
        with self._lock:
            gone: list[Written] = []
            before, self._written = self._written, []
            for each in before:
                (gone if self._is_over(each, covered) else self._written).append(each)
            for id, row in covered.items():
                known = self.recorded.get(id, {})
                self.recorded[id] = {end: rows for end, rows in known.items() if end > row}
            left = {end for known in self.recorded.values() for end in known}
            self._known = {files: end for files, end in self._known.items() if end in left}
        keys = [key for each in gone for key in each.keys]
        if keys:
            self._store.delete(self._entry, keys)

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self) -> list[Entered]:
        """What earlier runs recorded and nobody deleted, in the order in which it was recorded. Changes nothing."""
        if not self._store.has_entry(self._entry):
            return []
        found: list[Entered] = []
        for key in self._store.keys(self._entry):
            if "=" in key:
                continue
            batches = self._read(key)
            refs = [ref for each in batches for _, ref in each.files if isinstance(ref, SegmentRef)]
            ends = {each.connection: each.end for each in batches}
            self._written.append(Written((key, *dict.fromkeys(ref.key for ref in refs)), ends))
            dropped = {(each.connection, each.end) for each in batches if not each.files}
            found = [each for each in found if (each.connection, each.end) not in dropped]
            found += [each for each in batches if each.files]
        for each in found:
            self._note(each.connection, each.end, each.rows)
        return found

    def _read(self, key: str) -> list[Entered]:
        """The batches of one write; those without files do not count any more."""
        raw = self._store.get(self._entry, key)
        if raw is None or checksum(raw[4:]).to_bytes(4, "big") != raw[:4]:
            raise DamagedError(
                f"{self._store.describe(self._entry, key)} is damaged: its checksum does not match.",
                cure="It holds rows that entered a region and that no epoch has. Restore the file, or delete it: then those rows"
                " are counted as lost.",
            )
        try:
            found = codec.decode(raw[4:])
        except StateError as error:
            raise DamagedError(f"{self._store.describe(self._entry, key)}: {error.message}") from error
        return [
            Entered(ConnectionId(id), end, *(_batch(*batch) if batch else (0, ())))
            for id, end, *batch in found
        ]

    def batch(self, entered: Entered) -> Batch:
        """A recorded batch as files of this run."""
        directory = self._live / "entered"
        directory.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, data in entered.files:
            paths.append(directory / f"{self._entry}-{next(self._fetched)}-{name}")
            if isinstance(data, bytes):
                paths[-1].write_bytes(data)
            else:
                self._store.fetch_segment(data, paths[-1])
        made = batch_of(paths, entered.rows)
        self._known[made.files] = entered.end
        return made


def _batch(rows: int, files: list[Any]) -> tuple[int, tuple[tuple[str, bytes | SegmentRef], ...]]:
    return rows, tuple((name, data if isinstance(data, bytes) else SegmentRef(*data)) for name, data in files)
