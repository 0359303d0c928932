"""Executor side of line-oriented files: tasks that read byte ranges and return lines with their positions.

Importable and small, so that Spark ships a reference and plain values. The same reader serves runs without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.sources.lines import Block, LineRules, Mark, blocks, row_texts

LINE_SCHEMA = pa.schema(
    [
        pa.field("__hf_text", pa.string()),
        pa.field("__hf_ordinal", pa.int64()),
        pa.field("__hf_row", pa.int64()),
        pa.field("__hf_line", pa.int64()),
    ]
)
"""What the tasks return: the line, its file's ordinal, its row, its line number in the file (from 1)."""

LINE_DDL = "__hf_text string, __hf_ordinal bigint, __hf_row bigint, __hf_line bigint"

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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for piece in self.groups[group]:
                    yield from read_range(piece, self.rules)


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
    rows = np.arange(block.begin.row, block.begin.row + count, dtype=np.int64)
    ordinals = np.full(count, ordinal, dtype=np.int64)
    columns = [text, pa.array(ordinals), pa.array(rows), pa.array(block.lines + (block.begin.line + 1))]
    return pa.RecordBatch.from_arrays(columns, schema=LINE_SCHEMA)
