"""What reading one slice of files means, as plain data: pieces of files and how to read them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import InputError
from holdfast.language.connectors import Slice
from holdfast.sources.file_cut import Cutter, Place
from holdfast.sources.line_tasks import LineRange, TellMalformed
from holdfast.sources.lines import BEGINNING, LineRules, Mark, blocks, count_line_ends
from holdfast.sources.text.values import reason_of


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Rows of one file from `begin` to `end` (None: to its end)."""

    path: str
    ordinal: int
    size: int
    begin: Mark = BEGINNING
    end: Mark | None = None
    columns: tuple[str, ...] | None = None
    """The order of the schema's columns in this file; None: the schema's."""
    since: int = 0
    """The offset from which lines are counted: this stretch of the file begins there."""

    def line(self, number: int) -> int:
        """The number of a line in the whole file. Reads what lies before: for people, after a failure."""
        return number + count_line_ends(self.path, self.since)

    @property
    def whole(self) -> bool:
        return self.begin == BEGINNING and self.end is None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A slice, ready to be read by any engine."""

    pieces: tuple[FilePiece, ...]
    format: str
    schema: pa.Schema
    malformed: str
    options: dict[str, str]
    rules: LineRules
    cutter: Cutter

    @property
    def whole(self) -> bool:
        """No file is torn."""
        return all(piece.whole for piece in self.pieces)

    def piece(self, ordinal: int) -> FilePiece:
        return next(piece for piece in self.pieces if piece.ordinal == ordinal)

    @property
    def teller(self) -> TellMalformed:
        """What tells where malformed rows are and what is wrong with them."""
        files = {piece.ordinal: (piece.path, piece.since) for piece in self.pieces}
        return TellMalformed(files, self.format, self.schema, self.options)

    def runs(self) -> list[FilePlan]:
        """One plan for each run of neighbouring files with the same order of columns, at least one; its schema has that
        order."""
        runs = [
            (columns, tuple(found))
            for columns, found in itertools.groupby(self.pieces, lambda piece: piece.columns)
        ]
        return [self._ordered(*run) for run in runs] or [self]

    def groups(self) -> list[FilePlan]:
        """The same, but one plan for each order: neighbours or not."""
        found: dict[tuple[str, ...] | None, list[FilePiece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.columns, []).append(piece)
        return [self._ordered(columns, tuple(pieces)) for columns, pieces in found.items()] or [self]

    def _ordered(self, columns: tuple[str, ...] | None, pieces: tuple[FilePiece, ...]) -> FilePlan:
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return replace(self, pieces=pieces, schema=schema)

    def ranges(self, target_bytes: int) -> list[LineRange]:
        """The pieces as byte ranges of about `target_bytes`, in position order."""
        return [part for piece in self.pieces for part in self._split(piece, target_bytes)]

    def _split(self, piece: FilePiece, target_bytes: int) -> list[LineRange]:
        stop = None if piece.end is None else piece.end.offset
        length = max(0, (piece.size if stop is None else stop) - piece.begin.offset)
        parts = 1 if piece.path.endswith(".gz") else max(1, round(length / target_bytes))
        begins = [piece.begin]
        marks = self.cutter.scan_marks(piece.ordinal) if parts > 1 else []
        for part in range(1, parts):
            wanted = piece.begin.offset + length * part // parts
            found = next((m for m in marks if m.offset >= wanted and (stop is None or m.offset < stop)), None)
            if found is not None and found.offset > begins[-1].offset:
                begins.append(found)
        ends = [*(mark.offset for mark in begins[1:]), stop]
        return [
            LineRange(piece.path, piece.ordinal, begin, end, length // len(begins))
            for begin, end in zip(begins, ends, strict=True)
        ]


def pieces_of(cutter: Cutter, piece: Slice) -> tuple[FilePiece, ...]:
    """The pieces of files a slice consists of."""
    start, end = Place.of(piece.start), Place.of(piece.end)
    last = end.ordinal if end.mark != BEGINNING else end.ordinal - 1
    pieces = []
    for ordinal in range(start.ordinal, last + 1):
        memory, entry = cutter.memory, cutter.memory.entry(ordinal)
        begin = cutter.start(start if ordinal == start.ordinal else Place(ordinal, BEGINNING))
        stop = end.mark if ordinal == end.ordinal else None
        limit = memory.end(ordinal)
        if stop is None and limit is not None:
            stop = Mark(begin.row, limit, begin.line)  # only the offset counts
        pieces.append(FilePiece(memory.path(ordinal), ordinal, entry.size, begin, stop, since=entry.begin))
    return tuple(pieces)


def stretches(cutter: Cutter, piece: Slice) -> list[list[Any]]:
    """The slice's pieces as plain data that means the same in a later run: path, begin, end offset or None."""
    return [[p.path, *p.begin, p.end.offset if p.end else None] for p in pieces_of(cutter, piece)]


def count_lines(found: list[list[Any]], rules: LineRules) -> int:
    """Rows of `stretches`, by looking for line ends; nothing is parsed."""
    return sum(
        len(block.starts)
        for path, row, offset, line, end in found
        for block in blocks(path, rules, Mark(row, offset, line), end)
    )


def count_by_footers(found: list[list[Any]]) -> int:
    """Rows of `stretches` of Parquet files. Only whole files do not know their rows."""
    return sum(pq.read_metadata(path).num_rows for path, *_ in found)


def balance(ranges: Sequence[LineRange], groups: int) -> tuple[tuple[LineRange, ...], ...]:
    """At most `groups` runs of neighbouring ranges with about the same number of bytes."""
    total = sum(part.bytes for part in ranges) or 1
    result: list[list[LineRange]] = [[] for _ in range(groups)]
    before = 0
    for part in ranges:
        middle = before + part.bytes / 2
        result[min(groups - 1, int(middle * groups / total))].append(part)
        before += part.bytes
    return tuple(tuple(group) for group in result if group)


def malformed_error(plan: FilePlan, ordinal: int, line: int, text: str | None, raw: str | None) -> InputError:
    """The error of a row that does not fit the schema. A line that is not UTF-8 has no text."""
    piece = plan.piece(ordinal)
    names = piece.columns or plan.schema.names
    schema = pa.schema([plan.schema.field(name) for name in names])
    columns = ", ".join(f"{field.name} {field.type}" for field in schema)
    shown = (text if text is not None else raw) or ""
    shown = shown if len(shown) <= 200 else shown[:200] + "…"
    reason = reason_of(text, plan.format, schema, plan.options)
    return InputError(
        f"{piece.path}, line {piece.line(line)}: the row does not fit the schema ({columns}), {reason}: {shown!r}.",
        cure='Correct the row, or choose malformed="stream", "drop" or "null".',
    )
