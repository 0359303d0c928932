"""Parquet segments: what tails become when they are merged. Any tool reads their rows; the footer says which positions they
have. Pages carry checksums, and the name of the file carries one of all its bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast import durable
from holdfast.errors import DamagedError
from holdfast.log.format.frame import NO_TIME
from holdfast.log.format.names import parse
from holdfast.log.rows import TIME_COLUMN, TIME_TYPE, LogBatch, as_utc, bounds_of
from holdfast.state.columns import parquet_frames
from holdfast.store import sealed_file

KEY = b"holdfast.log"
KIND = "log-parquet"
GROUP_BYTES = 8 << 20
COMPRESSION = "zstd"


@dataclass(frozen=True, slots=True)
class Group:
    """A row group: its rows, in order, are those of `runs`, pairs of first position and number of rows."""

    runs: tuple[tuple[int, int], ...]
    t_min: int
    t_max: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet segment says of itself."""

    log: str
    partition: int
    first: int
    end: int
    t_before: int
    """The greatest time of all rows before it, those of earlier segments included."""
    t_run_max: int
    """The same up to its end."""
    time: str | None
    groups: tuple[Group, ...]
    notes: tuple[int, int] | None = None
    """Of the file with its notes: how many, and the checksum of its footer. None: there are none."""

    def encode(self) -> bytes:
        data = {
            "log": self.log, "partition": self.partition, "first": self.first, "end": self.end,
            "t_before": self.t_before, "t_run_max": self.t_run_max, "time": self.time,
            "groups": [[list(map(list, g.runs)), g.t_min, g.t_max] for g in self.groups],
        }  # fmt: skip
        if self.notes is not None:
            data["notes"] = list(self.notes)
        payload = json.dumps(data, separators=(",", ":")).encode()
        return sealed_file.seal(KIND, self.log, f"{self.first}-{self.end}", payload)

    @staticmethod
    def decode(data: bytes, path: object, log: str, first: int, end: int) -> Footer:
        payload = sealed_file.unseal(data, str(path), KIND, log, f"{first}-{end}")
        with sealed_file.understood(str(path)):
            found: dict[str, Any] = json.loads(payload)
            groups = tuple(
                Group(tuple((int(a), int(n)) for a, n in runs), int(low), int(top))
                for runs, low, top in found["groups"]
            )
            notes = (int(found["notes"][0]), int(found["notes"][1])) if "notes" in found else None
            return Footer(
                found["log"], int(found["partition"]), int(found["first"]), int(found["end"]),
                int(found["t_before"]), int(found["t_run_max"]), found["time"], groups, notes,
            )  # fmt: skip


class SegmentWriter:
    """Writes one segment under a temporary name; `finish` makes its bytes durable and gives their checksum."""

    def __init__(self, path: Path, schema: pa.Schema, footer: Footer) -> None:
        """`footer` without groups."""
        self._footer = footer
        self._groups: list[Group] = []
        self._waiting: list[LogBatch] = []
        self._bytes = 0
        self._schema = schema if footer.time is not None else schema.append(pa.field(TIME_COLUMN, TIME_TYPE))
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, durable.FILE_MODE)
        self._file = durable.ChecksummedFile(self._fd)
        self._writer = pq.ParquetWriter(
            self._file, self._schema, compression=COMPRESSION, compression_level=1,
            write_page_checksum=True, write_page_index=True,
        )  # fmt: skip

    def add(self, batch: LogBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.rows.nbytes
        if self._bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        rows = pa.Table.from_batches([self._columns(each) for each in self._waiting], self._schema)
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            bounds = [bounds_of(each.times) for each in self._waiting]
            known = [each for each in bounds if each[0] != NO_TIME] or [(NO_TIME, NO_TIME)]
            runs = _joined((each.position, each.rows.num_rows) for each in self._waiting)
            self._groups.append(Group(runs, min(b[0] for b in known), max(b[1] for b in known)))
        self._waiting, self._bytes = [], 0

    def _columns(self, batch: LogBatch) -> pa.RecordBatch:
        if self._footer.time is not None:
            return batch.rows
        return pa.RecordBatch.from_arrays([*batch.rows.columns, batch.times], schema=self._schema)

    def finish(self) -> tuple[int, int]:
        """The checksums of all bytes, which are durable now, and of the footer."""
        if self._waiting:
            self._write_group()
        footer = replace(self._footer, groups=tuple(self._groups))
        self._writer.add_key_value_metadata({KEY: footer.encode()})
        self._writer.close()
        os.fsync(self._fd)
        return self._file.crc, footer_checksum(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def read_footer(file: pq.ParquetFile, path: Path, log: str) -> Footer:
    """DamagedError if the file is not a segment of this log, or says other things of its rows than they are."""
    data = (file.metadata.metadata or {}).get(KEY)
    if data is None:
        raise DamagedError(
            f"{path} does not say that it is a segment of a log.", cure="Restore it from a backup."
        )
    name = parse(path.name)
    if name is None or name.end is None:
        raise DamagedError(f"{path} is not the name of a segment.", cure="Restore its name.")
    footer = Footer.decode(data, path, log, name.first, name.end)
    rows = [sum(n for _, n in group.runs) for group in footer.groups]
    there = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    if rows != there:
        raise DamagedError(f"{path} has other rows than its footer says.", cure="Restore it from a backup.")
    return footer


def footer_checksum(fd: int) -> int:
    """Of what says where everything is: footer, its length, and the magic at the end. Pages have checksums of their own."""
    size = os.fstat(fd).st_size
    end = os.pread(fd, 8, size - 8) if size > 8 else b""
    length = int.from_bytes(end[:4], "little") + 8
    return durable.checksum(os.pread(fd, length, size - length)) if length <= size else 0


def open_parquet(path: Path) -> pq.ParquetFile:
    """DamagedError for what is not the segment of this name; FileNotFoundError if there is nothing."""
    name = parse(path.name)
    with durable.opened(path, os.O_RDONLY) as fd:
        if name is None or footer_checksum(fd) != name.footer_crc:
            raise sealed_file.damaged(path, "has a footer that does not match the checksum in its name")
    try:
        parquet_frames.check_structure(path)
        return pq.ParquetFile(str(path), page_checksum_verification=True, **parquet_frames.LIMITS)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise damaged(path, error) from error


def group_starts(path: Path, log: str) -> list[int]:
    """Where its row groups begin, as positions, ascending: between them it is cut without reading a group twice."""
    with open_parquet(path) as file:
        return [group.runs[0][0] for group in read_footer(file, path, log).groups]


def read_groups(
    file: pq.ParquetFile, footer: Footer, path: object, start: int, end: int, columns: list[str] | None = None
) -> Iterator[LogBatch]:
    """Rows of [start, end), group by group. Groups without any of them are not read."""
    for number, group in enumerate(footer.groups):
        if not any(first < end and first + rows > start for first, rows in group.runs):
            continue
        try:
            wanted = None if columns is None else [*columns, footer.time or TIME_COLUMN]
            table = file.read_row_group(number, columns=wanted, use_threads=False)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise damaged(path, error, group.runs[0][0]) from error
        missing = {footer.time or TIME_COLUMN, *(columns or ())} - set(table.column_names)
        if missing:
            raise damaged(path, ValueError(f"there is no column {min(missing)!r}"), group.runs[0][0])
        at = 0
        for first, rows in group.runs:
            if first < end and first + rows > start:
                try:
                    batch = _batch(footer, table.slice(at, rows), first, columns)
                except (
                    pa.ArrowException,
                    ValueError,
                ) as error:  # its times are none, or of a zone that is no text
                    raise damaged(path, error, first) from error
                yield batch.cut(start, end)
            at += rows


def _batch(footer: Footer, table: pa.Table, first: int, columns: list[str] | None) -> LogBatch:
    times = table.column(footer.time or TIME_COLUMN).combine_chunks()
    times = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    if footer.time is None:
        table = table.drop_columns([TIME_COLUMN])
    elif columns is not None:
        table = table.select(columns)
    batches = table.combine_chunks().to_batches()
    schema = table.schema.remove_metadata()
    rows = pa.RecordBatch.from_arrays(batches[0].columns if batches else [], schema=schema)
    return LogBatch(footer.partition, first, rows, as_utc(times))


def damaged(path: object, error: Exception, position: int | None = None) -> DamagedError:
    where = "" if position is None else f" from position {position} on"
    return DamagedError(
        f"{path} is damaged{where}: {error}.", cure="Restore the file from a backup, or read on behind it."
    )


def _joined(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for first, rows in runs:
        if joined and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + rows)
        elif rows:
            joined.append((first, rows))
    return tuple(joined)
