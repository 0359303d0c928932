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
from holdfast.sinks.output.partitions import split


class Written(NamedTuple):
    """What a task wrote: the file's hidden name in the step's directory, and the checksum and size of its bytes, taken while they were written."""

    name: str
    crc: int
    size: int


@dataclass(frozen=True)
class ParquetTaskWriter:
    """Writes one partition's rows into the directory of a step, which exists: a file for each directory that the columns in
    `partition_by` name, one after the other."""

    directory: str
    compression: str
    partition_by: tuple[str, ...] = ()

    def __call__(self, table: pa.Table, partition: int, attempt: int) -> list[Written]:
        """No rows, no file."""
        name = f".part-{partition:05}-t{attempt}.parquet"
        pieces = split(table, self.partition_by) if table.num_rows else ()
        return [self._write(rows, os.path.join(directory, name)) for directory, rows in pieces]

    def _write(self, table: pa.Table, name: str) -> Written:
        path = os.path.join(self.directory, name)
        with translate_os_errors(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                with open(path, "xb", buffering=0) as target:
                    file = ChecksummedFile(target.fileno())
                    pq.write_table(
                        table,
                        pa.PythonFile(file, mode="w"),
                        compression=self.compression,
                        **encodings(table),
                        store_schema=False,
                    )
            except OSError:
                remove_quietly(path)
                raise
        return Written(name, file.crc, file.size)


def show(directory: Path, written: Sequence[Sequence[Written]]) -> dict[str, tuple[int, int]]:
    """Give the winners' files the names under which the step's files are looked for; returns (checksum, size) by path."""
    sums = {}
    with translate_os_errors(str(directory)):
        for name, crc, size in (one for of_task in written for one in of_task):
            hidden = directory / name
            path = hidden.with_name(hidden.name.removeprefix("."))
            os.rename(hidden, path)
            sums[str(path)] = (crc, size)
    return sums
