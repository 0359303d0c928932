"""Tasks that write a step's Parquet files themselves, beside the rows they made.

A task writes under a hidden name that carries its attempt; the driver gives the files of the attempts that won their
plain names. What a second or late attempt leaves behind stays hidden and goes with the step's directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.durable import ChecksummedFile, remove_quietly, translate_os_errors
from holdfast.sinks.encoding import encodings


class Written(NamedTuple):
    """What a task wrote: the file's hidden name, and the checksum and size of its bytes, taken while they were written."""

    name: str
    crc: int
    size: int


@dataclass(frozen=True)
class ParquetTaskWriter:
    """Writes one partition's rows into the directory of a step, which exists."""

    directory: str
    compression: str

    def __call__(self, table: pa.Table, partition: int, attempt: int) -> Written | None:
        """None: no rows, no file."""
        if not table.num_rows:
            return None
        name = f".part-{partition:05}-t{attempt}.parquet"
        path = os.path.join(self.directory, name)
        with translate_os_errors(path):
            try:
                crc, size = self._write(table, path)
            except OSError:
                remove_quietly(path)
                raise
        return Written(name, crc, size)

    def _write(self, table: pa.Table, path: str) -> tuple[int, int]:
        with open(path, "xb", buffering=0) as target:
            file = ChecksummedFile(target.fileno())
            pq.write_table(
                table,
                pa.PythonFile(file, mode="w"),
                compression=self.compression,
                **encodings(table),
                store_schema=False,
            )
        return file.crc, file.size


def show(directory: Path, written: Sequence[Written | None]) -> dict[str, tuple[int, int]]:
    """Give the winners' files the names under which the step's files are looked for; returns (checksum, size) by path."""
    sums = {}
    with translate_os_errors(str(directory)):
        for one in written:
            if one is not None:
                name, crc, size = one  # it has travelled as a list
                path = directory / name.removeprefix(".")
                os.rename(directory / name, path)
                sums[str(path)] = (crc, size)
    return sums
