"""Executor side of the file sink: make one durable file out of the files several steps wrote for a partition.

Importable functions over plain data, run through `SinkContext.run_tasks`. csv and json are concatenated (a header is
kept once), parquet is joined by its bytes under a new footer where the files are alike, and decoded where they are not.
One file that is to stay one file is not copied.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.durable import (
    checksum,
    checksum_file,
    fsync_directory,
    fsync_file,
    remove_quietly,
    translate_os_errors,
)
from holdfast.errors import DamagedError
from holdfast.sinks.parquet_join import NotJoinable, join_parquet

_CHUNK = 1 << 20
LARGE_BYTES = 4 << 20
"""A file of this size is not copied into a larger one: from here on reading costs Spark more than opening
(`spark.sql.files.openCostInBytes`)."""

SMALL_GROUP_BYTES = 1 << 20
GROUP_BYTES = 64 << 20
"""Row groups below the first (stored) are worth to be written anew, as ones of the second (decoded)."""

Sums = Mapping[str, tuple[int, int]]
"""(checksum, size) of files with rows, told by who wrote them."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Make `target` from `sources` (absolute paths). With one source, the source itself is made durable."""

    format: str
    header: bool
    sources: tuple[str, ...]
    target: str
    sums: Sums = field(default_factory=dict)
    """Of those sources of which they are known: these are not read again to stay one file."""
    final: bool = False
    """Nothing will be joined to it any more: small row groups of parquet become large ones."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A durable, invisible file."""

    path: str
    size: int
    crc: int


def merge(task: MergeTask) -> Staged | None:
    """Do one task; None if there is no row in any source. On failure the target is removed."""
    with translate_os_errors(task.target):
        sources = [p for p in task.sources if p in task.sums or has_rows(p, task.format, task.header)]
        if not sources:
            return None
        if len(sources) == 1:
            return _durable(sources[0], *_sum_of(sources[0], task.sums))
        try:
            parquet = task.format == "parquet"
            crc, size = _merge_parquet(sources, task) if parquet else _concatenate(sources, task)
            return _durable(task.target, crc, size)
        except BaseException:
            remove_quietly(task.target)
            raise


def _sum_of(path: str, sums: Sums) -> tuple[int, int]:
    """(checksum, size) of a file that stays as it is."""
    if path not in sums:
        return checksum_file(path)
    crc, size = sums[path]
    if (found := os.path.getsize(path)) != size:
        raise DamagedError(
            f"{path} has {found} bytes, its writer wrote {size}.",
            cure="Check the disk, then start the run again: the rows are produced again.",
        )
    return crc, size


def _durable(path: str, crc: int, size: int) -> Staged:
    fsync_file(path)
    fsync_directory(os.path.dirname(path))
    return Staged(path, size, crc)


def has_rows(path: str, format: str, header: bool) -> bool:
    """False for files that hold nothing, or nothing but a header or footer."""
    if format == "parquet":
        return bool(pq.read_metadata(path).num_rows)
    if not header or not path.endswith((".csv", ".csv.gz")):
        return os.path.getsize(path) > 0  # other compressions are not looked into
    with _uncompressed(path) as file:
        file.seek(header_length(path))
        return bool(file.read(1))


def header_length(path: str) -> int:
    """Bytes of the first record: up to the first newline outside quotes."""
    quoted, length = False, 0
    with _uncompressed(path) as file:
        for line in file:
            length += len(line)
            quoted ^= line.count(b'"') % 2 == 1
            if not quoted:
                break
    return length


def _uncompressed(path: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.endswith(".gz") else open(path, "rb")


def _concatenate(sources: list[str], task: MergeTask) -> tuple[int, int]:
    """(checksum, size) of the new target."""
    crc = size = 0
    with open(task.target, "xb") as target:
        for number, path in enumerate(sources):
            with open(path, "rb") as source:
                if number and task.header:
                    source.seek(header_length(path))
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    crc, size = checksum(chunk, crc), size + len(chunk)
    return crc, size


def _merge_parquet(sources: list[str], task: MergeTask) -> tuple[int, int]:
    """(checksum, size) of the new target."""
    try:
        if not (task.final and _has_small_groups(sources)):
            return join_parquet(sources, task.target)
    except NotJoinable:
        pass
    _decode_and_encode(sources, task.target)
    return checksum_file(task.target)


def _has_small_groups(sources: list[str]) -> bool:
    """Whether readers would gain by larger row groups. Nested columns are left to be joined by their bytes."""
    files = [pq.read_metadata(path) for path in sources]
    if any(pa.types.is_nested(field.type) for field in files[0].schema.to_arrow_schema()):
        return False
    groups = sum(file.num_row_groups for file in files)
    return bool(groups > 1 and sum(map(os.path.getsize, sources)) < groups * SMALL_GROUP_BYTES)


def _decode_and_encode(sources: list[str], target: str) -> None:
    """The slow way, for files whose schemas or writers differ, or of small row groups: all rows are cast to the first file's
    schema, and row groups written of as many as fit."""
    schema, int96 = _target_schema(pq.ParquetFile(sources[0], coerce_int96_timestamp_unit="us"))
    compression = _compression(pq.ParquetFile(sources[0]))
    with pq.ParquetWriter(
        target, schema, compression=compression, use_deprecated_int96_timestamps=int96
    ) as writer:
        gathered: list[pa.Table] = []
        for path in sources:
            file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                gathered.append(table if table.schema.equals(schema) else table.cast(schema))
                if sum(table.nbytes for table in gathered) >= GROUP_BYTES:
                    writer.write_table(pa.concat_tables(gathered))
                    gathered = []
        if gathered:
            writer.write_table(pa.concat_tables(gathered))


def shape_of(path: str, format: str, header: bool) -> int:
    """A number that differs where columns differ so that files cannot become one: by name and type, as far as files tell."""
    if format == "parquet":
        fields = pq.read_schema(path)
        told = [
            f"{field.name} {'time' if pa.types.is_timestamp(field.type) else field.type}" for field in fields
        ]
        return checksum("\n".join(told).encode())
    if not header:
        return 0
    with _uncompressed(path) as file:
        return checksum(file.read(header_length(path)))


def _target_schema(file: Any) -> tuple[pa.Schema, bool]:
    """(schema, write INT96). Spark's TIMESTAMP is INT96 unless told otherwise, and stays so in the merged file.

    Arrow shows INT96 without a zone and writes either all timestamps as INT96 or none; where TIMESTAMP_NTZ stands
    beside INT96, the latter become 64-bit instants, which Spark reads as the same TIMESTAMP.
    """
    schema = file.schema_arrow
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    instants = {column.path for column in columns if column.physical_type == "INT96"}
    others = [c for c in columns if c.path not in instants and c.logical_type.type == "TIMESTAMP"]
    if not instants or not others:
        return schema, bool(instants)
    utc = pa.timestamp("us", tz="UTC")
    fields = [field.with_type(utc) if field.name in instants else field for field in schema]
    return pa.schema(fields, schema.metadata), False


def _compression(file: Any) -> str:
    if not file.metadata.num_row_groups or not file.metadata.num_columns:
        return "snappy"
    codec = str(file.metadata.row_group(0).column(0).compression).lower()
    return "none" if codec == "uncompressed" else codec


def part_number(name: str) -> int:
    """Partition of a file that Spark (`part-00012-…`) or we named."""
    digits = name.removeprefix("part-")[:5]
    return int(digits) if digits.isdecimal() else 0


def parquet_rows(directory: Path) -> int:
    """How many rows the Parquet files of a step have, as their footers say."""
    return sum(pq.read_metadata(path).num_rows for path in data_files(directory))


def data_files(directory: Path) -> list[Path]:
    """What a step wrote, also in directories of partitions, without Spark's side files; an absent directory holds nothing."""
    found: list[Path] = []
    for entry in os.scandir(directory) if directory.is_dir() else ():
        if entry.is_dir():
            found += data_files(Path(entry.path)) if "=" in entry.name else []
        elif not entry.name.startswith((".", "_")):
            found.append(Path(entry.path))
    return sorted(found)
