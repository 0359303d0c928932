"""A segment: an immutable, checksummed Arrow IPC file of state rows, ascending by `__hf_hash`.

Live segments are volatile: they are renamed into place whole, but not fsynced. Durability comes with the
upload of a checkpoint, which verifies the checksum that was computed when the segment was written.

One record batch per segment, not compressed, so that a memory map gives NumPy views without a copy.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from holdfast.durable import ChecksummedFile, checksum_file, remove_quietly, translate_os_errors
from holdfast.errors import DamagedError, StateError, StoreError
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns import arrow_frames
from holdfast.state.columns.sorted_rows import SortedRows

SUFFIX = ".arrow"

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class Segment:
    """A written segment. `name` carries operator, partition, step and attempt, for a piece of a merge also which and
    how far (see layout.py); `crc` is over the whole file."""

    name: str
    path: str
    rows: int
    bytes: int
    crc: int


Segments = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition writes: an existing directory, and a prefix that carries operator, partition and attempt."""

    directory: Path
    prefix: str

    def write(self, table: pa.Table, suffix: str = "") -> Segment:
        """The table as the segment whose name is the prefix with the suffix behind it."""
        return write_segment(self.directory, self.prefix + suffix, table)


def write_segment(directory: Path, name: str, table: pa.Table) -> Segment:
    """Write `table` as the segment `name` in `directory`, which exists. The caller never reuses a name."""
    if not _SAFE.fullmatch(name):
        raise StateError(
            f"{name!r} cannot be the name of a segment.", cure="Use letters, digits, '_', '-' and '.'."
        )
    path = Path(directory) / (name + SUFFIX)
    staged = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with translate_os_errors(str(path)):
        try:
            size, crc = _write_staged(staged, table)
            os.rename(staged, path)
        except BaseException:
            remove_quietly(staged)
            raise
    return Segment(name, str(path), table.num_rows, size, crc)


def _write_staged(staged: Path, table: pa.Table) -> tuple[int, int]:
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        file = ChecksummedFile(fd)
        _write_to(pa.PythonFile(file, mode="w"), table)
        return file.size, file.crc
    finally:
        os.close(fd)


def _write_to(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)


def open_segment(path: str | Path) -> pa.Table:
    """The rows of a segment by memory map, without copying.

    The contents are trusted: a segment that comes from elsewhere passes `verify_segment` and `open_foreign` first."""
    try:
        with pa.memory_map(str(path), "r") as source:
            return pa.ipc.open_file(source).read_all()
    except FileNotFoundError as error:
        raise StoreError(
            f"the segment {path} is not there.", cure="The region restores from its epoch."
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, str(error)) from error


def open_foreign(path: str | Path, place: str = "") -> pa.Table:
    """The rows of a segment that a store or a file gave, every one of them checked: whoever can write there may have
    written anything, with a right checksum. `place`: what the segment is called in errors."""
    try:
        return arrow_frames.read_file(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(place or path, f"it is no table that holdfast wrote ({error})") from error


def verify_segment(path: str | Path, *, crc: int, size: int) -> None:
    """DamagedError unless the file has exactly the bytes that were written."""
    try:
        found_crc, found_size = checksum_file(path)
    except FileNotFoundError as error:
        raise damaged(path, "it is not there") from error
    if found_size != size:
        raise damaged(path, f"it has {found_size} bytes instead of {size}")
    if found_crc != crc:
        raise damaged(path, f"its checksum is {found_crc:08x} instead of {crc:08x}")


def damaged(path: str | Path, why: str) -> DamagedError:
    return DamagedError(f"the segment {path} is damaged: {why}.", cure="Restore an older epoch.")


MOST = 1024
_LOOKED_AT = 64
"""So many entries are looked at per step: does their file still exist?"""

_Key = tuple[str, int]


class _Rows(Protocol):
    @property
    def table(self) -> pa.Table: ...


Rows = TypeVar("Rows", bound=_Rows)


class _Entry(NamedTuple):
    rows: Any
    schema: pa.Schema
    """The schema object that was last found equal: comparing again would cost more than the rest."""


class OpenedSegments:
    """The segments this process has mapped, kept from step to step: mapped anew each time, a segment would be parsed again
    and every page that a look-up touches would fault again. Any thread may call it. What must hold:

    - A segment is known by path and checksum, so that other bytes under the same path are never taken for it.
    - At most `MOST` segments are kept; the one unused for longest goes first.
    - A removed file's blocks are freed when the last map goes: segments that a step drops are forgotten at once, those
      that vanish otherwise (another process took over the partition) within a few steps of this one."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._unchecked: list[_Key] = []
        self._asked: tuple[pa.Schema, pa.Schema] = (None, None)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, segment: Segment, schema: pa.Schema) -> SortedRows:
        """The rows of a segment of a keyed map."""
        return self.get_as(segment, schema, SortedRows)

    def get_as(self, segment: Segment, schema: pa.Schema, make: Callable[[pa.Table], Rows]) -> Rows:
        """What `make` makes of the segment's rows, mapped now unless they are already. The segment is not empty; it is
        always asked for with the same `make`."""
        key = (segment.path, segment.crc)
        schema = self._known(schema)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                if entry.schema is schema:
                    known: Rows = entry.rows
                    return known
        table = open_segment(segment.path) if entry is None else entry.rows.table
        if not table.schema.equals(schema):
            raise _other_columns(segment, table.schema, schema)
        rows: Rows = make(table) if entry is None else entry.rows
        with self._lock:
            self._entries[key] = _Entry(rows, schema)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return rows

    def _known(self, schema: pa.Schema) -> pa.Schema:
        """An equal schema that was asked for before: a task brings its own object, but the same one for all segments."""
        asked, known = self._asked
        if asked is schema:
            return known
        if known is None or not known.equals(schema):
            known = schema
        self._asked = (schema, known)
        return known

    def forget(self, segments: Iterable[Segment]) -> None:
        """These are no longer needed."""
        with self._lock:
            for segment in segments:
                self._entries.pop((segment.path, segment.crc), None)

    def forget_vanished(self) -> None:
        """Look at the next few entries, in turn, and drop those whose file has gone."""
        with self._lock:
            if not self._unchecked:
                self._unchecked = list(self._entries)
            looked_at, self._unchecked = self._unchecked[:_LOOKED_AT], self._unchecked[_LOOKED_AT:]
        gone = [key for key in looked_at if not os.path.exists(key[0])]
        with self._lock:
            for key in gone:
                self._entries.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


OPENED = OpenedSegments()
"""The segments of this process. A forked child starts with its parent's maps, which are as good as its own."""


def segment_rows(segment: Segment, aggregation: Aggregation) -> SortedRows:
    """The rows of a segment. StateError if it was made with other aggregates or types."""
    return OPENED.get(segment, aggregation.state_schema)


def _other_columns(segment: Segment, found: pa.Schema, wanted: pa.Schema) -> StateError:
    return StateError(
        f"the segment {segment.name} has columns {found.names}, the operator wants {wanted.names}.",
        cure="Restore with the aggregates and types it was made with, or start from an empty store.",
    )
