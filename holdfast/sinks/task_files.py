"""Tasks that write a step's Parquet files themselves, beside the rows they made.

A task writes under a hidden name that carries its attempt; the driver gives the files of the attempts that won their
plain names. What a second or late attempt leaves behind stays hidden and goes with the step's directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.durable import remove_quietly, translate_os_errors
from holdfast.sinks.encoding import dictionary_columns


@dataclass(frozen=True)
class ParquetTaskWriter:
    """Writes one partition's rows into the directory of a step, which exists."""

    directory: str
    compression: str

    def __call__(self, table: pa.Table, partition: int, attempt: int) -> str | None:
        """The hidden name; None: no rows, no file."""
        if not table.num_rows:
            return None
        name = f".part-{partition:05}-t{attempt}.parquet"
        path = os.path.join(self.directory, name)
        with translate_os_errors(path):
            try:
                pq.write_table(
                    table,
                    path,
                    compression=self.compression,
                    use_dictionary=dictionary_columns(table),
                    store_schema=False,
                )
            except OSError:
                remove_quietly(path)
                raise
        return name


def show(directory: Path, names: Sequence[str | None]) -> None:
    """Give the winners' files the names under which the step's files are looked for."""
    with translate_os_errors(str(directory)):
        for name in names:
            if name is not None:
                os.rename(directory / name, directory / name.removeprefix("."))
