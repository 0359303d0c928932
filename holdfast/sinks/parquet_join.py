"""Join Parquet files byte by byte: column chunks are copied as they are, only the footer is made anew.

The footer is a struct in Thrift's compact protocol. It is read and written generically: a struct is a dict of
field id → (wire type, value), so that fields this module does not know by name survive unchanged. By name it knows the
four structs that hold absolute offsets; a field id beyond those it has been taught could hold one too, so such a file
is not joined. Page indexes hold offsets of their own and are left behind (they are optional), as are row groups
without rows. Why bytes, and at what price: docs/decisions/0002-parquet-joined-by-bytes.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from holdfast.durable import checksum, write_all
from holdfast.errors import DamagedError

Struct = dict[int, tuple[int, Any]]

_MAGIC = b"PAR1"
_CHUNK = 1 << 20
_LARGEST_FOOTER = 64 << 20  # decoded it is many times as large; beyond, let pyarrow have it
_DEEPEST = 32

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_FIXED = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8, _UUID: 16}  # bytes, outside of a field's header

# Field ids of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData in parquet.thrift.
_VERSION, _SCHEMA, _ROWS, _GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = range(1, 8)
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, _META, _PAGE_INDEXES = 2, 3, (4, 5, 6, 7)
_COMPRESSED_SIZE, _DATA, _INDEX, _DICTIONARY, _BLOOM, _BLOOM_LENGTH = 7, 9, 10, 11, 14, 15
_KNOWN = {"file": range(1, 8), "row group": range(1, 8), "chunk": range(2, 8), "column": range(1, 18)}
_READ_BY_READERS = (b"ARROW:schema", b"org.apache.spark.sql.parquet.row.metadata")


class NotJoinable(Exception):
    """These files are sound, but must be joined by decoding them. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A file's footer; the bytes its row groups need are those from the leading magic up to `end`."""

    path: str
    meta: Struct
    groups: list[Struct]
    end: int


def join_parquet(sources: Sequence[str], target: str) -> tuple[int, int]:
    """Make the new file `target` of all row groups of all sources in order; returns (checksum, size).

    NotJoinable before anything is written if the files are not alike enough; DamagedError if one is malformed.
    The target is not made durable here, and stays as it is on failure.
    """
    files = [_read(path) for path in sources]
    _check_alike(files)
    footer = _joined_footer(files)
    if len(footer) > _LARGEST_FOOTER:
        raise NotJoinable("the joined footer would be too large")
    with open(target, "xb", buffering=0) as out:
        write_all(out.fileno(), _MAGIC)
        crc, size = checksum(_MAGIC), len(_MAGIC)
        for file in files:
            for part in _bytes_of(file):
                write_all(out.fileno(), part)
                crc, size = checksum(part, crc), size + len(part)
        tail = footer + len(footer).to_bytes(4, "little") + _MAGIC
        write_all(out.fileno(), tail)
    return checksum(tail, crc), size + len(tail)


# --- one source ---


def _read(path: str) -> _Source:
    with open(path, "rb") as file:
        raw, limit = _raw_footer(file, path)
    try:
        reader = _Reader(raw)
        meta = reader.struct(0)
        _only_known(meta, "file")
        if reader.at != len(raw):
            raise NotJoinable(f"{path} has bytes after its footer")
        groups = _structs(meta, _GROUPS)
        if sum(_number(group, _GROUP_ROWS) for group in groups) != _number(meta, _ROWS):
            raise ValueError("the row groups do not add up to the rows of the file")
        groups = [group for group in groups if _number(group, _GROUP_ROWS)]
        end = max((_prepare_group(group, limit) for group in groups), default=len(_MAGIC))
    except ValueError as error:
        _damaged(path, str(error), error)
    return _Source(path, meta, groups, end)


def _raw_footer(file: BinaryIO, path: str) -> tuple[bytes, int]:
    """(footer, its place in the file)."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(4)
    if size < 12:
        _damaged(path, "it is too short")
    file.seek(size - 8)
    tail = file.read(8)
    if tail[4:] == b"PARE":
        raise NotJoinable(f"{path} is encrypted")
    length = int.from_bytes(tail[:4], "little")
    if head != _MAGIC or tail[4:] != _MAGIC or length > size - 12:
        _damaged(path, "the magic bytes or the length of the footer are wrong")
    if length > _LARGEST_FOOTER:
        raise NotJoinable(f"the footer of {path} is too large")
    file.seek(size - 8 - length)
    return file.read(length), size - 8 - length


def _prepare_group(group: Struct, limit: int) -> int:
    """Take away what does not survive a move; returns where the bytes of the group end."""
    _only_known(group, "row group")
    group.pop(_ORDINAL, None)  # means something to encrypted files only
    end = len(_MAGIC)
    for chunk in _structs(group, _COLUMNS):
        _only_known(chunk, "chunk")
        for field in _PAGE_INDEXES:
            chunk.pop(field, None)
        column = _field(chunk, _META, _STRUCT)
        _only_known(column, "column")
        starts = [_number(column, _DATA), _number(column, _DICTIONARY, 0) or limit]
        end = max(end, _within(min(starts), _number(column, _COMPRESSED_SIZE), limit))
        if _BLOOM_LENGTH in column:
            end = max(end, _within(_number(column, _BLOOM), _number(column, _BLOOM_LENGTH), limit))
        else:
            column.pop(_BLOOM, None)
    return end


def _within(start: int, length: int, limit: int) -> int:
    if start < len(_MAGIC) or length < 0 or start + length > limit:
        raise ValueError(f"{length} bytes at {start} are not inside the file's data")
    return start + length


def _only_known(struct: Struct, kind: str) -> None:
    if strange := [field for field in struct if field not in _KNOWN[kind]]:
        raise NotJoinable(f"field {strange[0]} of a {kind} may be about encryption, other files or offsets")


def _bytes_of(file: _Source) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(_CHUNK, file.end)))
    missing = file.end - len(_MAGIC)
    with open(file.path, "rb", buffering=0) as source:
        source.seek(len(_MAGIC))
        while missing:
            count = source.readinto(buffer[:missing])
            if not count:
                _damaged(file.path, "it became shorter while being read")
            yield buffer[:count]
            missing -= count


def _damaged(path: str, why: str, cause: Exception | None = None) -> NoReturn:
    raise DamagedError(
        f"{path} is not a sound Parquet file: {why}.",
        cure="Check the disk, then start the run again: the rows are produced again.",
    ) from cause


# --- the joined footer ---


def _check_alike(files: list[_Source]) -> None:
    """Whatever is said once per file must hold for the row groups of all. The writer's name belongs to that: readers
    trust or distrust statistics by it."""
    first = files[0]
    for file in files[1:]:
        for field in (_VERSION, _SCHEMA, _CREATED_BY, _COLUMN_ORDERS):
            if file.meta.get(field) != first.meta.get(field):
                raise NotJoinable(f"{first.path} and {file.path} differ in field {field} of their footers")
        if _key_values(file) != _key_values(first):
            raise NotJoinable(f"{first.path} and {file.path} differ in their Spark or Arrow schema")


def _key_values(file: _Source) -> dict[Any, Any]:
    """The entries that change how rows are read; of the others the first file's are kept."""
    if _KEY_VALUES not in file.meta:
        return {}
    entries = ({field: value for field, (_, value) in s.items()} for s in _structs(file.meta, _KEY_VALUES))
    return {entry.get(1): entry.get(2) for entry in entries if entry.get(1) in _READ_BY_READERS}


def _joined_footer(files: list[_Source]) -> bytes:
    groups, delta = [], 0
    for file in files:
        for group in file.groups:
            _move(group, delta)
            groups.append(group)
        delta += file.end - len(_MAGIC)
    rows = sum(_number(file.meta, _ROWS) for file in files)
    meta = files[0].meta | {_ROWS: (_I64, rows), _GROUPS: (_LIST, (_STRUCT, groups))}
    out = bytearray()
    _write_struct(out, meta)
    return bytes(out)


def _move(group: Struct, delta: int) -> None:
    _shift(group, (_GROUP_OFFSET,), delta)
    for chunk in _structs(group, _COLUMNS):
        _shift(chunk, (_CHUNK_OFFSET,), delta)
        _shift(_field(chunk, _META, _STRUCT), (_DATA, _INDEX, _DICTIONARY, _BLOOM), delta)


def _shift(struct: Struct, fields: tuple[int, ...], delta: int) -> None:
    for field in fields:
        if (offset := _number(struct, field, 0)) > 0:  # writers say 0 for "none"
            struct[field] = (_I64, offset + delta)


# --- Thrift's compact protocol ---


def _field(struct: Struct, field: int, *types: int) -> Any:
    kind, value = struct.get(field, (0, None))
    if kind not in types:
        raise ValueError(f"field {field} is missing or of another type")
    return value


def _number(struct: Struct, field: int, default: int | None = None) -> int:
    if default is not None and field not in struct:
        return default
    return int(_field(struct, field, _I16, _I32, _I64))


def _structs(struct: Struct, field: int) -> list[Struct]:
    kind, values = _field(struct, field, _LIST)
    if values and kind != _STRUCT:
        raise ValueError(f"field {field} is not a list of structs")
    return list(values)


class _Reader:
    """Decodes bytes that may be anything: a length is believed only if as many bytes are left."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise ValueError("the footer ends too early")
        return self.data[start : self.at]

    def varint(self) -> int:
        result = shift = 0
        for byte in self.data[self.at : self.at + 10]:
            self.at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80 and result < 1 << 64:
                return result
            shift += 7
        raise ValueError("a number does not end")

    def signed(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def struct(self, depth: int) -> Struct:
        """Fields in the order they stand in. A boolean field is all in its type."""
        fields: Struct = {}
        field = 0
        while header := self.take(1)[0]:
            kind = header & 15
            field = field + (header >> 4) if header >> 4 else self.signed()
            if field in fields:
                raise ValueError(f"field {field} stands there twice")
            fields[field] = (kind, None if kind in (_TRUE, _FALSE) else self.value(kind, depth + 1))
        return fields

    def value(self, kind: int, depth: int) -> Any:
        """A number, bytes, a struct, (type, values) of a list or set, or (types, [key, value, …]) of a map."""
        if depth > _DEEPEST:
            raise ValueError("values are nested too deeply")
        if kind in (_I16, _I32, _I64):
            return self.signed()
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _FIXED or kind == _BINARY:
            return self.take(_FIXED.get(kind) or self.varint())
        if kind in (_LIST, _SET):
            header = self.take(1)[0]
            count = header >> 4 if header >> 4 < 15 else self.varint()
            return header & 15, self.values([header & 15], count, depth)
        if kind == _MAP:
            count = self.varint()
            types = self.take(1)[0] if count else 0
            return types, self.values([types >> 4, types & 15], count, depth)
        raise ValueError(f"there is no type {kind}")

    def values(self, kinds: list[int], count: int, depth: int) -> list[Any]:
        if count > len(self.data) - self.at:  # none is shorter than a byte
            raise ValueError("a list is longer than the footer")
        return [self.value(kind, depth + 1) for _ in range(count) for kind in kinds]


def _write_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_signed(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in struct.items():
        if 0 < field - before < 16:
            out.append((field - before) << 4 | kind)
        else:
            out.append(kind)
            _write_signed(out, field)
        before = field
        if kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (_I16, _I32, _I64):
        _write_signed(out, value)
    elif kind == _STRUCT:
        _write_struct(out, value)
    elif kind in (_LIST, _SET):
        element, values = value
        out.append(min(len(values), 15) << 4 | element)
        if len(values) >= 15:
            _write_varint(out, len(values))
        for each in values:
            _write_value(out, element, each)
    elif kind == _MAP:
        types, values = value
        _write_varint(out, len(values) // 2)
        out += bytes([types] if values else [])
        for number, each in enumerate(values):
            _write_value(out, types & 15 if number % 2 else types >> 4, each)
    else:
        if kind == _BINARY:
            _write_varint(out, len(value))
        out += value
