"""Parquet files that somebody else may have made: what frames their rows is looked through before any are read.

Batches on their way are Parquet files that are never compressed (`runtime/engines`). Logs and outputs are: whoever reads
those reads a group, or some rows, at a time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.state.columns.thrift import I32, LIST, STRUCT, Reader, Struct, field_of, structs_of

_LONGEST_FOOTER = 1 << 26
_MOST_COLUMNS = 1 << 15
_GROWTH = 1 << 10
"""A page that becomes so many times as large when it is uncompressed was not written by us."""

_SCHEMA, _GROUPS, _COLUMNS, _META, _CODEC, _SIZES, _TEXT_BYTES, _REPETITION, _DEFINITION = (
    2,
    4,
    1,
    3,
    4,
    16,
    1,
    2,
    3,
)
"""Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and SizeStatistics in parquet.thrift."""
_BYTE_ARRAY = 6
"""Of the types of columns the one whose statistics tell how many bytes its values have."""
_CODECS = range(8)
"""From UNCOMPRESSED to LZ4_RAW."""

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
    check_structure(path)
    with pq.ParquetFile(str(path), **LIMITS) as opened:
        _check_footer(opened.metadata, size, compressed)


def check_structure(path: str | Path) -> None:
    """ValueError unless the statistics of levels fit the types and depths of the columns, and ways to compress are known: Arrow
    ends the process where they do not. Nothing of Arrow is asked before."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(8)[:4], "little")
        if not 0 < length <= min(size - 12, _LONGEST_FOOTER):
            raise ValueError("its footer does not fit into it")
        file.seek(size - 8 - length)
        data = file.read(length)
    try:
        meta = Reader(data).struct(0)
        leaves = _leaves(structs_of(meta, _SCHEMA))
        for group in structs_of(meta, _GROUPS):
            columns = structs_of(group, _COLUMNS)
            if len(columns) != len(leaves):
                raise ValueError("a group has other columns than the schema")
            for column, leaf in zip(columns, leaves, strict=True):
                meta_data = field_of(column, _META, [STRUCT])
                if field_of(meta_data, _CODEC, [I32]) not in _CODECS:
                    raise ValueError("a column is compressed in a way that nobody knows")
                _check_statistics(meta_data, *leaf)
    except (IndexError, RecursionError) as error:
        raise ValueError("its footer ends too early") from error


def _check_statistics(column: Struct, kind: int, *depths: int) -> None:
    statistics = field_of(column, _SIZES, [STRUCT]) if _SIZES in column else {}
    if _TEXT_BYTES in statistics and kind != _BYTE_ARRAY:
        raise ValueError("statistics of a column are those of another type")
    for field, depth in zip((_REPETITION, _DEFINITION), depths, strict=True):
        if field in statistics and len(field_of(statistics, field, [LIST])[1]) not in (0, depth + 1):
            raise ValueError("statistics of a column are of another depth than the column")


def _leaves(schema: list[Struct]) -> list[tuple[int, int, int]]:
    """Of each column, in order, its type, how often it may repeat and how often it may be missing. Numbers of another width than
    they should have are refused: Arrow takes them as not there."""
    leaves: list[tuple[int, int, int]] = []
    todo = [(0, 0, 1)]
    """(repeated, missing, children to come) of the groups that are open."""
    for number, element in enumerate(schema):
        if not todo:
            raise ValueError("its schema has more columns than it tells")
        repeated, missing, left = todo.pop()
        if left > 1:
            todo.append((repeated, missing, left - 1))
        if number:
            kind = field_of(element, 3, [I32]) if 3 in element else 0
            repeated, missing = repeated + (kind == 2), missing + (kind in (1, 2))
        children = field_of(element, 5, [I32]) if 5 in element else 0
        if children > 0:
            todo.append((repeated, missing, children))
        elif number:
            leaves.append((field_of(element, 1, [I32]) if 1 in element else -1, repeated, missing))
    return leaves


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
