"""A segment: an immutable, checksummed Arrow IPC file of state rows, ascending by `__hf_hash`.

Live segments are volatile: they are renamed into place whole, but not fsynced. Durability comes with the
upload of a checkpoint, which verifies the checksum that was computed when the segment was written.

One record batch per segment, not compressed, so that a memory map gives NumPy views without a copy.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.durable import ChecksummedFile, checksum_file, remove_quietly, translate_os_errors
from holdfast.errors import DamagedError, StateError, StoreError

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

    The contents are trusted: a segment that comes from elsewhere passes `verify_segment` first.
    """
    try:
        with pa.memory_map(str(path), "r") as source:
            return pa.ipc.open_file(source).read_all()
    except FileNotFoundError as error:
        raise StoreError(
            f"the segment {path} is not there.", cure="The region restores from its epoch."
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, str(error)) from error


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
