"""Executor side of line-oriented files: tasks that read byte ranges and return lines with their positions.

Importable and small, so that Spark ships a reference and plain values. The same reader serves runs without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sources.lines import Block, LineRules, Mark, blocks, count_line_ends, row_texts
from holdfast.sources.text.exact_strings import ExactStrings
from holdfast.sources.text.odd_lines import odd
from holdfast.sources.text.values import reason_of

LINE_SCHEMA = pa.schema(
    [
        pa.field("__hf_text", pa.string()),
        pa.field("__hf_ordinal", pa.int64()),
        pa.field("__hf_row", pa.int64()),
        pa.field("__hf_line", pa.int64()),
        pa.field("__hf_raw", pa.string()),
    ]
)
"""What the tasks return: the line, its file's ordinal, its row, its line number (from 1). A line that is not UTF-8 has no
text; what can be shown of it is in the last column."""

TASK_DDL = "__hf_text string, __hf_ordinal bigint, __hf_row bigint, __hf_line bigint, __hf_raw string, __hf_exact string"
"""What tasks give to Catalyst: LINE_SCHEMA, and the line as it should be parsed, if that is another: see `exact_strings`."""

MALFORMED = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("text", pa.string()),
    ]
)
"""Columns of the stream of malformed rows."""

MALFORMED_DDL = "file string, line bigint, reason string, text string, __hf_ordinal bigint, __hf_row bigint"

_BATCH_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class LineRange:
    """Rows of one file from `begin` up to the byte `end_offset` (None: the file's end)."""

    path: str
    ordinal: int
    begin: Mark
    end_offset: int | None
    bytes: int = 0
    """About how long it is, for sharing the work out."""


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """`mapInArrow` function over `range(len(groups))`: partition i reads the ranges of group i."""

    groups: tuple[tuple[LineRange, ...], ...]
    rules: LineRules
    options: dict[str, str]
    strings: ExactStrings | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for piece in self.groups[group]:
                    for lines in read_range(piece, self.rules):
                        lines = self._marked(lines)
                        yield lines.append_column("__hf_exact", self._exact(lines.column(0)))

    def _marked(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Lines that are no rows although they can be parsed have something to be shown, like those that are not UTF-8."""
        texts = lines.column(0)
        found = odd(texts, self.rules.kind, self.options)
        if found is None:
            return lines
        return lines.set_column(4, LINE_SCHEMA.field(4), pc.if_else(found, texts, lines.column(4)))

    def _exact(self, texts: pa.Array) -> pa.Array:
        quoted = texts if self.strings is None else self.strings.quoted(texts)
        return pa.nulls(len(texts), pa.string()) if quoted is texts else quoted


def read_range(piece: LineRange, rules: LineRules) -> Iterator[pa.RecordBatch]:
    """The range's rows as batches of LINE_SCHEMA."""
    for block in blocks(piece.path, rules, piece.begin, piece.end_offset):
        if not len(block.starts):
            continue
        whole = _batch(block, piece.ordinal)
        for start in range(0, whole.num_rows, _BATCH_ROWS):
            yield whole.slice(start, _BATCH_ROWS)


def read_lines(pieces: Sequence[LineRange], rules: LineRules) -> pa.Table:
    """All rows of all ranges as one table of LINE_SCHEMA, in position order."""
    return pa.Table.from_batches(
        [b for piece in pieces for b in read_range(piece, rules)], schema=LINE_SCHEMA
    )


def _batch(block: Block, ordinal: int) -> pa.RecordBatch:
    data, offsets = row_texts(block)
    count = len(offsets) - 1
    text = pa.StringArray.from_buffers(count, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data))
    raw = pa.nulls(count, pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        text, raw = _without_undecodable(text)
    rows = np.arange(block.begin.row, block.begin.row + count, dtype=np.int64)
    ordinals = np.full(count, ordinal, dtype=np.int64)
    columns = [text, pa.array(ordinals), pa.array(rows), pa.array(block.lines + (block.begin.line + 1)), raw]
    return pa.RecordBatch.from_arrays(columns, schema=LINE_SCHEMA)


def _without_undecodable(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(lines that are UTF-8, and null for others; what can be shown of the others)."""
    good: list[str | None] = []
    raw: list[str | None] = []
    for line in texts.cast(pa.binary()).to_pylist():
        try:
            good.append(line.decode())
            raw.append(None)
        except UnicodeDecodeError:
            good.append(None)
            raw.append(line.decode(errors="replace"))
    return pa.array(good, pa.string()), pa.array(raw, pa.string())


@dataclass(frozen=True)
class TellMalformed:
    """`mapInArrow` function over malformed lines (LINE_SCHEMA): where each is and what is wrong with it (MALFORMED and
    its position). `files`: path and offset from which lines are counted, by ordinal."""

    files: dict[int, tuple[str, int]]
    kind: str
    schema: pa.Schema
    options: dict[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.told(pa.Table.from_batches([batch])).to_batches()

    def told(self, lines: pa.Table) -> pa.Table:
        skipped = {ordinal: count_line_ends(*file) for ordinal, file in self.files.items() if file[1]}
        rows = []
        for line in lines.to_pylist():
            text, ordinal = line["__hf_text"], line["__hf_ordinal"]
            reason = reason_of(text, self.kind, self.schema, self.options)
            number = line["__hf_line"] + skipped.get(ordinal, 0)
            rows.append((self.files[ordinal][0], number, reason, line["__hf_raw"] if text is None else text))
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * len(MALFORMED)
        told = pa.table([pa.array(c, f.type) for c, f in zip(columns, MALFORMED, strict=True)], MALFORMED)
        for name in ("__hf_ordinal", "__hf_row"):
            told = told.append_column(LINE_SCHEMA.field(name), lines[name])
        return told
