"""Parquet files that somebody else may have made: what frames their rows is looked through before any are read.

Batches on their way are Parquet files that are never compressed (`runtime/engines`). Logs and outputs are: whoever reads
those reads a group, or some rows, at a time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_LONGEST_FOOTER = 1 << 26
_MOST_COLUMNS = 1 << 15
_GROWTH = 1 << 10
"""A page that becomes so many times as large when it is uncompressed was not written by us."""

LIMITS: dict[str, Any] = {
    "thrift_string_size_limit": _LONGEST_FOOTER,
    "thrift_container_size_limit": 1 << 20,
    "memory_map": False,
}


def check(path: str | Path, compressed: bool = False) -> None:
    """ValueError, pa.ArrowException or OSError unless the footer can be believed; `compressed`: columns may be."""
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        file.seek(max(0, size - 8))
        end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if size < 12 or end[4:] != b"PAR1" or not 0 < length <= min(size - 12, _LONGEST_FOOTER):
        raise ValueError("its footer does not fit into it")
    with pq.ParquetFile(str(path), **LIMITS) as opened:
        _check_footer(opened.metadata, size, compressed)


def _check_footer(found: pq.FileMetaData, size: int, compressed: bool) -> None:
    if found.num_columns > _MOST_COLUMNS or found.num_row_groups * max(1, found.num_columns) > 1 << 22:
        raise ValueError("it has too many columns")
    rows = stored = 0
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        rows += group.num_rows
        if group.num_rows < 0:
            raise ValueError("a group tells a negative number of rows")
        for column in map(group.column, range(group.num_columns)):
            plain = column.compression == "UNCOMPRESSED"
            if not plain and not compressed:
                raise ValueError("its rows are compressed, which those of a batch on its way never are")
            stored += column.total_compressed_size
            most = column.total_compressed_size * (1 if plain else _GROWTH)
            if not 0 <= column.total_uncompressed_size <= max(most, 1 << 16):
                raise ValueError("a column tells to be larger than its bytes can be")
    if rows != found.num_rows:
        raise ValueError("its footer and its groups tell different numbers of rows")
    if stored > size:
        raise ValueError("its columns are larger than the file")
