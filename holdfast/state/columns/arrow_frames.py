"""Arrow bytes that somebody else may have made: looked through before Arrow reads them, and checked whole afterwards.

Arrow believes what frames the rows: a forged length ends the process, a compressed buffer of some bytes takes gigabytes.
So the frame (FlatBuffers, see the Arrow format) is read here first, bounded, and refused unless

- every message lies within the bytes, behind the one before, and none is compressed;
- every buffer lies within its message, and all together are not larger than it;
- no column has more rows than its batch can hold.

Then Arrow reads it and looks at every offset, index and character (`validate(full=True)`). What writes these bytes is
`segment.py` and the codec; both never compress. ValueError says what is wrong.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

_MAGIC = b"ARROW1"
_LONGEST_FRAME = 1 << 26
"""No schema and no batch of thousands of columns needs more than this many bytes to be framed."""
_MOST_BATCHES = 1 << 16
_DICTIONARY, _ROWS = 2, 3
_EMPTY_ROWS = 1 << 31
"""Rows that cost no bytes, as those of a column of nulls, may be this many."""

Bytes = bytes | memoryview | mmap.mmap


def read_file(path: str | Path) -> pa.Table:
    """The rows of an Arrow file, by memory map. ValueError, pa.ArrowException or OSError if they cannot be read."""
    with _mapped(path) as data:
        check_file(data)
    with pa.memory_map(str(path), "r") as source:
        table = pa.ipc.open_file(source).read_all()
    table.validate(full=True)
    return table


def rows_in(path: str | Path) -> int:
    """How many rows an Arrow file has, by its frame alone."""
    with _mapped(path) as data:
        check_file(data)
    with pa.memory_map(str(path), "r") as source:
        return int(pa.ipc.open_file(source).read_all().num_rows)


@contextmanager
def _mapped(path: str | Path) -> Iterator[mmap.mmap]:
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise ValueError("it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def read_message(message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of one message whose schema is known."""
    with _one_kind_of_error():
        _check_message(memoryview(message), 0, len(message))
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return batch


def read_stream(data: bytes) -> pa.Table:
    """The rows of an Arrow stream."""
    check_stream(data)
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def check_file(data: Bytes) -> None:
    """ValueError unless the frame of an Arrow file can be believed."""
    with _one_kind_of_error():
        size = len(data)
        if data[:6] != _MAGIC or size < 20 or data[size - 6 :] != _MAGIC:
            raise ValueError("it is not a whole Arrow file")
        (length,) = struct.unpack_from("<i", data, size - 10)
        begin = size - 10 - length
        if not 0 < length <= _LONGEST_FRAME or begin < 8:
            raise ValueError("its footer does not fit into it")
        footer = _Flat(bytes(data[begin : begin + length]))
        root = footer.root()
        place = 8
        for block in (*footer.structs(root, 2, 24), *footer.structs(root, 3, 24)):
            offset, framed, body = struct.unpack("<qi4xq", block)
            if offset < place or framed <= 0 or body < 0 or offset + framed + body > begin:
                raise ValueError("a batch does not lie where it should")
            place = _check_message(data, offset, begin)
            if place != offset + framed + body:
                raise ValueError("a batch has another size than the footer tells")


def check_stream(data: Bytes) -> None:
    """The same for an Arrow stream."""
    with _one_kind_of_error():
        place, end = 0, len(data)
        for _ in range(_MOST_BATCHES):
            if place >= end:
                return
            after = _check_message(data, place, end)
            if after == place:
                return
            place = after
        raise ValueError("it has too many batches")


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    try:
        yield
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError("its frame is damaged") from error


def _check_message(data: Bytes, offset: int, end: int) -> int:
    """Look through the message at `offset`; returns where it ends, `offset` itself for the mark that ends a stream."""
    length: int
    start, length = offset + 8, struct.unpack_from("<i", data, offset + 4)[0]
    if struct.unpack_from("<I", data, offset)[0] != 0xFFFFFFFF:
        start, length = (
            offset + 4,
            struct.unpack_from("<i", data, offset)[0],
        )  # as Arrow wrote before version 0.15
    if length == 0:
        return offset
    if not 0 < length <= _LONGEST_FRAME or start + length > end:
        raise ValueError("a frame does not fit into it")
    message = _Flat(bytes(data[start : start + length]))
    root = message.root()
    kind, body = message.number(root, 1, "<B"), message.number(root, 3, "<q")
    if body < 0 or start + length + body > end:
        raise ValueError("a batch does not fit into it")
    if kind in (_DICTIONARY, _ROWS):
        header = message.table(root, 2)
        batch = message.table(header, 1) if kind == _DICTIONARY else header
        _check_batch(message, batch, body)
    return start + length + body


def _check_batch(message: _Flat, batch: int, body: int) -> None:
    if message.place(batch, 3):
        raise ValueError("its rows are compressed, which holdfast never does")
    total = 0
    for buffer in message.structs(batch, 2, 16):
        offset, length = struct.unpack("<qq", buffer)
        if offset < 0 or length < 0 or offset + length > body:
            raise ValueError("a column does not fit into its batch")
        total += length
    if total > body:
        raise ValueError("columns share their bytes")
    most = max(8 * body, _EMPTY_ROWS)
    counts = [struct.unpack("<qq", node) for node in message.structs(batch, 1, 16)]
    if not 0 <= message.number(batch, 0, "<q") <= most:
        raise ValueError("it tells more rows than it can hold")
    if any(not 0 <= nulls <= rows or rows > most for rows, nulls in counts):
        raise ValueError("a column tells more rows than it can hold")


class _Flat:
    """A FlatBuffer, read field by field; struct.error or IndexError where something leads out of it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def root(self) -> int:
        return self._at("<I", 0)

    def _at(self, form: str, offset: int) -> int:
        if offset < 0:
            raise IndexError(offset)
        return int(struct.unpack_from(form, self._data, offset)[0])

    def place(self, table: int, field: int) -> int:
        """Where a field of a table lies; 0: it is not there."""
        names = table - self._at("<i", table)
        if 4 + 2 * field >= self._at("<H", names):
            return 0
        offset = self._at("<H", names + 4 + 2 * field)
        return table + offset if offset else 0

    def number(self, table: int, field: int, form: str) -> int:
        place = self.place(table, field)
        return self._at(form, place) if place else 0

    def table(self, table: int, field: int) -> int:
        place = self.place(table, field)
        if not place:
            raise IndexError(field)
        return place + self._at("<I", place)

    def structs(self, table: int, field: int, size: int) -> Iterator[bytes]:
        """The elements of a vector of structs."""
        if not self.place(table, field):
            return
        vector = self.table(table, field)
        count = self._at("<I", vector)
        if vector + 4 + count * size > len(self._data):
            raise IndexError(count)
        for number in range(count):
            yield self._data[vector + 4 + number * size : vector + 4 + (number + 1) * size]
