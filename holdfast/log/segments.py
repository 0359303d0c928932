"""Reading a stretch of a partition: a plain function of a path and positions, without the log.

`SegmentRange` is a small value that travels to other processes; whoever has the files can read it. Tails are read up to
the end that is given and no further: what lies behind may not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import DamagedError
from holdfast.log.format import frame as frames
from holdfast.log.format import index as indexes
from holdfast.log.format import parquet_segment, tail
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.frame import NO_TIME
from holdfast.log.format.index import Index
from holdfast.log.format.names import TAIL, SegmentName, index_name, parse
from holdfast.log.format.tail import Placed, TailHeader
from holdfast.log.machines.partition_state import Ranges, without
from holdfast.log.rows import LogBatch, first_not_before, times_of
from holdfast.state.columns import arrow_frames


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Rows [start, end) of one segment, but for those that were withdrawn."""

    path: str
    log: str
    start: int
    end: int
    withdrawn: Ranges = ()

    @property
    def name(self) -> SegmentName:
        found = parse(Path(self.path).name)
        if found is None:
            raise DamagedError(f"{self.path} is not the name of a segment.", cure="Restore its name.")
        return found

    @property
    def held_bytes(self) -> int:
        """Of a Parquet segment, by the share of its positions that are in the range; 0: nobody knows."""
        first, end = self.name.first, self.name.end
        try:
            return 0 if end is None else os.path.getsize(self.path) * (self.end - self.start) // (end - first)
        except OSError:
            return 0

    def group_starts(self) -> list[int]:
        """The positions in a Parquet segment at which it can be cut for nothing. Empty: it is a tail, or was merged meanwhile."""
        try:
            return [] if self.name.is_tail else parquet_segment.group_starts(Path(self.path), self.log)
        except FileNotFoundError:
            return []


def read_range(where: SegmentRange, columns: list[str] | None = None) -> Iterator[LogBatch]:
    """The rows in order, as batches. DamagedError tells the position from which on they are not what was written;
    FileNotFoundError: the segment was merged or trimmed meanwhile."""
    read = _read_tail if where.name.is_tail else _read_parquet
    reached = where.start
    for batch in read(where, columns):
        if batch.position < reached or (
            batch.position > reached and without(reached, batch.position, where.withdrawn)
        ):
            raise DamagedError(
                f"{where.path} lacks the rows from position {reached} on.",
                cure="Restore the file from a backup.",
            )
        reached = batch.next
        for start, end in without(batch.position, batch.next, where.withdrawn):
            yield batch.cut(start, end)
    if reached < where.end and without(reached, where.end, where.withdrawn):
        raise DamagedError(
            f"{where.path} ends at position {reached}, and should reach {where.end}.",
            cure="Restore the file from a backup, or read on behind it. Nothing was changed.",
        )


def decode_rows(header: TailHeader, placed: Placed, payload: memoryview) -> LogBatch:
    message = frames.rows_of(placed.frame, payload)
    try:
        rows = arrow_frames.read_message(pa.py_buffer(message), header.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DamagedError(
            f"the rows from position {placed.frame.position} on of partition {header.partition} are no rows that holdfast"
            f" wrote: {error}.",
            cure="Restore the file from a backup, or read on behind it.",
        ) from error
    return LogBatch(
        header.partition, placed.frame.position, rows, times_of(rows, header.time, placed.frame.t_max)
    )


class TailCursor:
    """Reads a tail frame by frame, and goes on where it was when the tail has grown."""

    def __init__(self, path: Path, log: str, name: SegmentName, position: int) -> None:
        """At the frame with the row `position`."""
        self.path = path
        self._file = FileBytes(path)
        try:
            self.header = tail.decode_header(self._file, path, log, name)
            self._log = bytes.fromhex(log)
            index = load_index(path, log, self._file, self.header)
            self._offset, self._position = _begin(self._file, self.header, index, position, self._log)
        except BaseException:
            self._file.close()
            raise
        self._kept: LogBatch | None = None

    def read(self, start: int, end: int) -> LogBatch:
        """Rows that begin at `start`, at least one and none from `end` on. All up to `end` is known to have been durable."""
        if self._kept is not None and self._kept.position <= start < self._kept.next:
            return self._kept.cut(start, end)
        at = _at(self.header, (self._offset, self._position))
        for placed in tail.scan(self._file, self._file.size, at, self._log, payloads=False):
            self._offset, self._position = placed.offset + placed.frame.bytes, placed.frame.next
            if not placed.frame.rows or placed.frame.next <= start:
                continue
            if not tail.is_whole(self._file, placed.offset, placed.frame):
                raise tail.damaged(self.path, placed.offset, placed.frame.position)
            payload = self._file(placed.offset + placed.frame.head_bytes, placed.frame.payload_bytes)
            self._kept = decode_rows(self.header, placed, payload)
            return self._kept.cut(start, end)
        raise tail.damaged(self.path, self._offset, self._position)

    def close(self) -> None:
        self._file.close()


def _read_tail(where: SegmentRange, columns: list[str] | None) -> Iterator[LogBatch]:
    cursor = TailCursor(Path(where.path), where.log, where.name, where.start)
    try:
        for start, end in without(where.start, where.end, where.withdrawn):
            while start < end:
                batch = cursor.read(start, end)
                yield batch if columns is None else batch.select(columns)
                start = batch.next
    finally:
        cursor.close()


def _begin(file: FileBytes, header: TailHeader, index: Index, position: int, log: bytes) -> tuple[int, int]:
    """(offset, position) of a frame at or before a position. An index that points anywhere else is not believed."""
    place = index.of_position(position)
    first = next(
        tail.scan(file, file.size, _at(header, (place.offset, place.position)), log, payloads=False), None
    )
    if first is None:
        return header.bytes, header.state.next
    return place.offset, place.position


def frames_from(
    file: FileBytes, path: Path, log: str, name: SegmentName, position: int, time: int | None
) -> Iterator[Placed]:
    """The frames of a tail, without those before the one with the row `position`, and without some whose rows are all
    before `time`."""
    header = tail.decode_header(file, path, log, name)
    index = load_index(path, log, file, header)
    place = index.of_position(position)
    if time is not None:
        place = max(place, index.of_time(time), key=lambda each: each.offset)
    begin = _begin(file, header, Index([place]), place.position, bytes.fromhex(log))
    return tail.scan(file, file.size, _at(header, begin), bytes.fromhex(log), payloads=False)


def _at(header: TailHeader, begin: tuple[int, int]) -> tail.Start:
    return tail.start_at(*begin, header.name, header.partition)


def _read_parquet(where: SegmentRange, columns: list[str] | None) -> Iterator[LogBatch]:
    path = Path(where.path)
    with parquet_segment.open_parquet(path) as file:
        footer = parquet_segment.read_footer(file, path, where.log)
        appended = _appended_schema(file)
        for batch in parquet_segment.read_groups(file, footer, path, where.start, where.end, columns):
            yield _as_appended(batch, appended)


def _appended_schema(file: pq.ParquetFile) -> pa.Schema | None:
    """The schema of the rows that were appended. None: the file has none, or the same types."""
    stored = (file.metadata.metadata or {}).get(b"ARROW:schema")
    found = None if stored is None else tail.decode_schema(stored.decode("ascii"))
    return None if found is None or found.types == file.schema_arrow.types else found


def _as_appended(batch: LogBatch, schema: pa.Schema | None) -> LogBatch:
    """Parquet has no types for some that Arrow has, such as times in seconds: as they were."""
    if schema is None:
        return batch
    fields = pa.schema([schema.field(name).remove_metadata() for name in batch.rows.schema.names])
    return LogBatch(batch.partition, batch.position, batch.rows.cast(fields), batch.times)


# --- the index of a tail ---


def load_index(path: Path, log: str, file: FileBytes, header: TailHeader) -> Index:
    """The stored index if it can be one of this tail; else its beginning only, with which a read takes longer."""
    try:
        data = path.with_name(index_name(header.name)).read_bytes()
    except OSError:
        data = b""
    found = indexes.decode(data, log, header.name) if data else None
    if found is None or found.places[0].offset != header.bytes or found.places[-1].offset >= file.size:
        return Index.beginning(header.name.first, header.bytes, header.state.t_run_max)
    return found


def build_index(file: FileBytes, header: TailHeader, log: bytes) -> Index:
    """Made again, by hopping from header to header."""
    index = Index.beginning(header.name.first, header.bytes, header.state.t_run_max)
    return index.add_all(tail.scan(file, file.size, tail.first_frame(header), log, payloads=False))


def store_index(path: Path, log: str, name: SegmentName, index: Index) -> None:
    """Beside its tail. It need not survive anything: it can be made again."""
    target = path.with_name(index_name(name))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(indexes.encode(index, log, name))
    os.replace(temporary, target)


def rebuild_indexes(directory: Path, log: str, but: SegmentName) -> int:
    """Make the indexes of all tails but one that have none of their own; how many."""
    made = 0
    for path in sorted(directory.glob(f"*{TAIL}")):
        name = parse(path.name)
        if name is None or name == but:
            continue
        with FileBytes(path) as file:
            header = tail.decode_header(file, path, log, name)
            built = build_index(file, header, bytes.fromhex(log))
            if load_index(path, log, file, header).places != built.places or not _has_index(path, name):
                store_index(path, log, name, built)
                made += 1
    return made


def _has_index(path: Path, name: SegmentName) -> bool:
    return path.with_name(index_name(name)).exists()


def position_of_time(where: SegmentRange, time: int) -> int | None:
    """The position of the first row in the range whose time is not before `time`. None: there is none."""
    if where.name.is_tail:
        return _time_in_tail(where, time)
    with parquet_segment.open_parquet(Path(where.path)) as file:
        footer = parquet_segment.read_footer(file, Path(where.path), where.log)
        for group in footer.groups:
            if group.t_max == NO_TIME or group.t_max < time:
                continue
            start, end = group.runs[0][0], sum(group.runs[-1])
            for batch in parquet_segment.read_groups(file, footer, where.path, start, end, []):
                cut = batch.cut(where.start, where.end)
                at = first_not_before(cut.times, time)
                if at is not None:
                    return cut.position + at
    return None


def _time_in_tail(where: SegmentRange, time: int) -> int | None:
    with FileBytes(Path(where.path)) as file:
        header = tail.decode_header(file, where.path, where.log, where.name)
        log = bytes.fromhex(where.log)
        place = load_index(Path(where.path), where.log, file, header).of_time(time)
        begin = _begin(file, header, Index([place]), place.position, log)
        for placed in tail.scan(file, file.size, _at(header, begin), log, payloads=False):
            frame = placed.frame
            if frame.position >= where.end:
                return None
            if frame.rows and frame.t_max != NO_TIME and frame.t_max >= time and frame.next > where.start:
                payload = file(placed.offset + frame.head_bytes, frame.payload_bytes)
                batch = decode_rows(header, placed, payload).cut(where.start, where.end)
                at = first_not_before(batch.times, time)
                if at is not None:
                    return batch.position + at
    return None


# --- times at the ends of a segment ---


def time_before(directory: Path, log: str, name: SegmentName) -> int:
    """The greatest time of all rows before a segment."""
    path = directory / str(name)
    if name.is_tail:
        with FileBytes(path) as file:
            return tail.decode_header(file, path, log, name).state.t_run_max
    with parquet_segment.open_parquet(path) as opened:
        return parquet_segment.read_footer(opened, path, log).t_before


def time_behind(directory: Path, log: str, name: SegmentName, end: int) -> int:
    """The greatest time of all rows before `end`, where a closed segment ends."""
    path = directory / str(name)
    if not name.is_tail:
        with parquet_segment.open_parquet(path) as opened:
            return parquet_segment.read_footer(opened, path, log).t_run_max
    with FileBytes(path) as file:
        header = tail.decode_header(file, path, log, name)
        found = header.state.t_run_max
        index = load_index(path, log, file, header)
        begin = _begin(file, header, index, end, bytes.fromhex(log))
        if begin[0] == index.places[-1].offset:
            found = max(found, index.places[-1].t_before)
        for placed in tail.scan(file, file.size, _at(header, begin), bytes.fromhex(log), payloads=False):
            if placed.frame.position >= end:
                break
            found = max(found, placed.frame.t_run_max)
        return found
