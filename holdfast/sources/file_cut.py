"""Deciding where a step's rows end: limits in, a cut out. Looks into files only when a limit needs it.

A *place* is (ordinal, mark): inside a file, or before its first row. Behind a file's last row there is no place of
its own: that is the beginning of the next ordinal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from holdfast.errors import InputError, StateError
from holdfast.sources.known_files.memory import FileMemory
from holdfast.sources.lines import BEGINNING, Ints, LineRules, Mark, blocks

DEFAULT_BYTES = 128 << 20


class Place(NamedTuple):
    """Where reading goes on."""

    ordinal: int
    mark: Mark

    def plain(self) -> list[int]:
        """As it is written into epochs: [ordinal, row, byte offset, line]."""
        return [self.ordinal, *self.mark]

    @classmethod
    def of(cls, plain: list[int]) -> Place:
        if not (
            isinstance(plain, list | tuple) and len(plain) == 4 and all(isinstance(n, int) for n in plain)
        ):
            raise StateError(f"{plain!r} is no position of a file source.", cure="Restore an earlier epoch.")
        return cls(plain[0], Mark(*plain[1:]))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a step may hold. None: any amount."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a slice. `rows` is None if no file had to be looked into."""

    end: Place
    rows: int | None
    bytes: int


@dataclass
class Cutter:
    """Cuts one source's files. `marks` remembers places met while scanning, so that reading can be split there."""

    memory: FileMemory
    rules: LineRules
    limits: Limits
    whole_files: bool = False
    """The byte limit ends a step between files only."""
    marks: dict[int, list[Mark]] = field(default_factory=dict)

    def cut(self, start: Place) -> Cut:
        """The end of the slice that begins at `start`; `start` itself if no file is left."""
        place, rows, size, files = start, 0, 0, 0
        counted = True
        self.marks = {ordinal: marks for ordinal, marks in self.marks.items() if ordinal >= start.ordinal}
        while place.ordinal < self.memory.count and not self._full(rows, size, files):
            room = self._room(rows, size)
            left = self.memory.entry(place.ordinal).size - (
                0 if self._compressed(place) else self.start(place).offset
            )
            if files and self._better_next(room, left):
                break
            self.memory.verify(place.ordinal, place.ordinal)
            after, took, bytes_ = self._advance(place, room, left)
            counted = counted and took is not None
            rows, size, files = rows + (took or 0), size + bytes_, files + 1
            torn, place = after.ordinal == place.ordinal, after
            if torn:
                break
        return Cut(place, rows if counted else None, size)

    def start(self, place: Place) -> Mark:
        """The mark of a place in its file: the rows of an ordinal need not begin with the file."""
        return self.memory.begin(place.ordinal) if place.mark == BEGINNING else place.mark

    def scan_marks(self, ordinal: int) -> list[Mark]:
        """Places where a whole file can be split, found by scanning it once."""
        if ordinal not in self.marks:
            self._scan(Place(ordinal, BEGINNING), Limits())
        return self.marks.get(ordinal, [])

    def _better_next(self, room: Limits, left: int) -> bool:
        """A file that is too big for the room left but goes whole into the next step is not torn."""
        if room.bytes is None or self.limits.bytes is None or left <= room.bytes:
            return False
        return self.whole_files or left <= self.limits.bytes

    def _compressed(self, place: Place) -> bool:
        return self.memory.entry(place.ordinal).name.endswith(".gz")

    def _full(self, rows: int, size: int, files: int) -> bool:
        limits = self.limits
        return (
            (limits.rows is not None and rows >= limits.rows)
            or (limits.bytes is not None and files > 0 and size >= limits.bytes)
            or (limits.files is not None and files >= limits.files)
        )

    def _room(self, rows: int, size: int) -> Limits:
        limits = self.limits
        return Limits(
            None if limits.rows is None else limits.rows - rows,
            None if limits.bytes is None else max(1, limits.bytes - size),
        )

    def _advance(self, place: Place, room: Limits, left: int) -> tuple[Place, int | None, int]:
        """Go through one file as far as there is room: (where, rows if known, bytes)."""
        following = Place(place.ordinal + 1, BEGINNING)
        if self.whole_files:
            room = Limits(room.rows)
        fits = room.bytes is None or left <= room.bytes
        if room.rows is None and fits and not (self._compressed(place) and place.mark.row):
            return following, None, left
        if self.rules.kind == "parquet":
            return self._advance_parquet(place, room, left)
        mark, rows, bytes_ = self._scan(place, room)
        return (following if mark is None else Place(place.ordinal, mark)), rows, bytes_

    def _scan(self, place: Place, room: Limits) -> tuple[Mark | None, int, int]:
        """Scan lines until the room is used up: (mark of the next row or None at the end, rows, bytes)."""
        start, marks = self.start(place), self.marks.setdefault(place.ordinal, [])
        last = start
        path, end = self.memory.path(place.ordinal), self.memory.end(place.ordinal)
        for block in blocks(path, self.rules, start, end):
            index = _rows_within(block.starts + block.begin.offset, block.begin.row, start, room)
            if index < len(block.starts):
                mark = block.mark(index)
                return mark, mark.row - start.row, mark.offset - start.offset
            if block.begin.row and (not marks or marks[-1].offset < block.begin.offset):
                marks.append(block.begin)
            last = block.end
        return None, last.row - start.row, last.offset - start.offset

    def _advance_parquet(self, place: Place, room: Limits, left: int) -> tuple[Place, int | None, int]:
        """By the footer alone: rows exactly, bytes by whole row groups."""
        path, start = self.memory.path(place.ordinal), place.mark.row
        try:
            footer = pq.read_metadata(path)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} is not a readable parquet file: {error}.", cure="Repair or remove it."
            ) from error
        end, begin, used = start, 0, 0
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            begin, before = begin + group.num_rows, used
            if begin <= start:
                continue
            used += _stored_bytes(group)
            if room.bytes is not None and used > room.bytes and before:
                used = before
                break
            end = begin
        if room.rows is not None and end - start > room.rows:
            end = start + room.rows
        if end >= footer.num_rows:
            return Place(place.ordinal + 1, BEGINNING), footer.num_rows - start, left
        return Place(place.ordinal, Mark(end, 0, 0)), end - start, used


def _rows_within(offsets: Ints, first_row: int, start: Mark, room: Limits) -> int:
    """Index of the first row (given by byte offsets) that has no room; a step takes at least one row."""
    index = len(offsets)
    if room.rows is not None:
        index = min(index, max(0, start.row + room.rows - first_row))
    if room.bytes is not None:
        at_least = 1 if first_row == start.row else 0
        index = min(index, max(at_least, int(np.searchsorted(offsets, start.offset + room.bytes))))
    return index


def _stored_bytes(group: Any) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
