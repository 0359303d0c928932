"""The notes of a Parquet segment: a Parquet file beside it, `<segment>.notes`, with a row per note, in order.

The segment's footer says that it is there and proves its footer; its pages carry checksums of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast import durable
from holdfast.log.format import parquet_segment
from holdfast.log.format.note import Note
from holdfast.store import sealed_file

SCHEMA = pa.schema(
    [
        ("writer", pa.string()),
        ("position", pa.uint64()),
        ("rows", pa.uint32()),
        ("sequence", pa.uint64()),
        ("note", pa.large_binary()),
    ]
)
GROUP_BYTES = 1 << 20


def write_notes(path: Path, notes: Iterable[tuple[str, Note]]) -> tuple[int, int] | None:
    """Write them durably under a temporary name: how many, and the checksum of the footer. None: there are none."""
    waiting: list[tuple[str, Note]] = []
    size = count = 0
    writer: pq.ParquetWriter | None = None
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, durable.FILE_MODE)
    try:
        for name, note in notes:
            writer = writer or pq.ParquetWriter(
                durable.ChecksummedFile(fd), SCHEMA, compression="zstd", write_page_checksum=True
            )
            waiting.append((name, note))
            size += len(note.payload)
            count += 1
            if size >= GROUP_BYTES:
                writer.write_table(_table(waiting))
                waiting, size = [], 0
        if writer is None:
            durable.remove_quietly(path)
            return None
        if waiting:
            writer.write_table(_table(waiting))
        writer.close()
        os.fsync(fd)
        return count, parquet_segment.footer_checksum(fd)
    finally:
        os.close(fd)


def _table(notes: list[tuple[str, Note]]) -> pa.Table:
    columns = [
        [writer for writer, _ in notes],
        [note.position for _, note in notes],
        [note.rows for _, note in notes],
        [note.sequence for _, note in notes],
        [note.payload for _, note in notes],
    ]
    arrays = [pa.array(values, column.type) for values, column in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def read_notes(
    path: Path, expected: tuple[int, int], writer: str | None, backwards: bool
) -> Iterator[tuple[str, Note]]:
    """Those of a writer, or of all, in order or from the last to the first; a group of them is in memory at a time.
    FileNotFoundError: the file is gone, with its segment or by damage."""
    with durable.opened(path, os.O_RDONLY) as fd:
        if parquet_segment.footer_checksum(fd) != expected[1]:
            raise sealed_file.damaged(path, "is not the file of notes that its segment was made with")
    try:
        with pq.ParquetFile(str(path), page_checksum_verification=True) as file:
            groups = range(file.metadata.num_row_groups)
            for number in reversed(groups) if backwards else groups:
                table = file.read_row_group(number, use_threads=False)
                if writer is not None:
                    table = table.filter(pc.equal(table.column("writer"), writer))
                found = table.to_pylist()
                for row in reversed(found) if backwards else found:
                    yield row["writer"], Note(row["position"], row["sequence"], row["note"], row["rows"])
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise parquet_segment.damaged(path, error) from error
