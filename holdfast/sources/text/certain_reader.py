"""Reading stretches of csv and JSON files in tasks, without Spark's reader: by Arrow, as long as nothing is in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, Declined, Stamp
from holdfast.sources.file_plan import FilePlan
from holdfast.sources.parquet_tasks import with_positions
from holdfast.sources.text.certain_tables import is_known, table_of

BLOCK_BYTES = 4 << 20
STRETCH_BYTES = 8 << 20
"""What one task reads at least, where several share a file."""


@dataclass(frozen=True)
class Stretch:
    """The lines of a file that begin in [begin, end); `end` None: up to its end. `row`: the first line's; -1: not known, for the stretch
    begins anywhere and its first line behind the next line's end."""

    path: str
    ordinal: int
    begin: int
    end: int | None
    row: int
    columns: tuple[str, ...]
    """In the order of the file."""


@dataclass(frozen=True)
class CertainReader:
    """Reads lines as rows of `schema`. In doubt it is Declined by its source."""

    stretches: tuple[Stretch, ...]
    kind: str
    header: bool
    schema: pa.Schema
    stamp: Stamp | None
    source: str

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables(self.tables(columns))

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Block by block."""
        yield pa.schema([*self.schema, *POSITION_FIELDS]).empty_table().select(list(columns))
        stamped = any(name in POSITION_COLUMNS for name in columns)
        try:
            for stretch in self.stretches:
                yield from self._read(stretch, list(columns), stamped)
        except Declined as declined:
            declined.by = self.source
            raise

    def parts(self) -> list[CertainReader]:
        """The same in pieces for several tasks. Where rows have positions a file is one piece: only its beginning knows its row."""
        cut = self.stretches if self.stamp is not None else [s for each in self.stretches for s in _cut(each)]
        return [replace(self, stretches=(stretch,)) for stretch in cut]

    def _read(self, stretch: Stretch, columns: list[str], stamped: bool) -> Iterator[pa.Table]:
        schema, row = pa.schema([self.schema.field(name) for name in stretch.columns]), stretch.row
        header_due = self.header and stretch.begin == 0
        with open(stretch.path, "rb") as file:
            for data in _blocks(file, stretch):
                rows = table_of(_without_header(data) if header_due else data, self.kind, schema)
                header_due = False
                if stamped:
                    assert self.stamp is not None
                    places = pa.array(np.arange(row, row + rows.num_rows, dtype=np.int64))
                    ordinals = pa.array(np.full(rows.num_rows, stretch.ordinal, dtype=np.int64))
                    row += rows.num_rows
                    rows = with_positions(rows, self.stamp, ordinals, places)
                yield rows.select(columns)


def certain_reader(plan: FilePlan, stamp: Stamp | None, source: str) -> CertainReader | None:
    """How tasks read a slice; None: Spark's reader is needed for such files."""
    if plan.options or not is_known(plan.format, plan.schema):
        return None
    if any(piece.path.endswith(".gz") for piece in plan.pieces):
        return None
    stretches = tuple(
        Stretch(
            piece.path,
            piece.ordinal,
            piece.begin.offset,
            None if piece.end is None else piece.end.offset,
            piece.begin.row,
            piece.columns or tuple(plan.schema.names),
        )
        for piece in plan.pieces
    )
    return CertainReader(stretches, plan.format, plan.rules.header, plan.schema, stamp, source)


def _cut(stretch: Stretch) -> Iterator[Stretch]:
    """A stretch in pieces of about STRETCH_BYTES."""
    with open(stretch.path, "rb") as file:
        end = file.seek(0, 2) if stretch.end is None else stretch.end
    count = max(1, (end - stretch.begin) // STRETCH_BYTES)
    places = [stretch.begin + (end - stretch.begin) * part // count for part in range(count)]
    for number, begin in enumerate(places):
        last = number == count - 1
        yield replace(
            stretch,
            begin=begin,
            end=stretch.end if last else places[number + 1],
            row=stretch.row if number == 0 else -1,
        )


def _blocks(file: BinaryIO, stretch: Stretch) -> Iterator[bytes]:
    """Whole lines, some MB at a time."""
    place = stretch.begin
    if stretch.row < 0:  # the line that begins before is another stretch's
        file.seek(place - 1)
        place += len(file.readline()) - 1
    else:
        file.seek(place)
    while stretch.end is None or place < stretch.end:
        want = BLOCK_BYTES if stretch.end is None else min(BLOCK_BYTES, stretch.end - place)
        data = file.read(want)
        if not data:
            return
        if not data.endswith(b"\n"):
            data += file.readline()
        place += len(data)
        yield data


def _without_header(data: bytes) -> bytes:
    if data.startswith((b"\n", b"\xef\xbb\xbf", b" ", b"\t")):
        raise Declined("a blank line before the header, or a byte order mark")
    line, _, rest = data.partition(b"\n")
    if b"\r" in line:
        raise Declined("other ends of lines")
    return rest
