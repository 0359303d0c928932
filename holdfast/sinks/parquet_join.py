"""Join Parquet files byte by byte: column chunks are copied as they are, only the footer is made anew.

The footer is a struct in Thrift's compact protocol, read and written generically: a struct is a dict of field id →
(wire type, value), so what has no name here survives unchanged. Names have the four structs that hold absolute offsets;
a field id that parquet.thrift did not have when this was written could hold one too, so such a file is not joined. Page
indexes hold offsets of their own and are left behind (they are optional), as are row groups without rows.
Why bytes, and at what price: docs/decisions/0002-parquet-joined-by-bytes.md.
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
_CHUNK, _DEEPEST = 1 << 20, 32
_LARGEST_FOOTER = 64 << 20  # decoded it is many times as large; beyond, let pyarrow have it

# Wire types; parquet.thrift has no sets and maps.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
_INTEGERS = (_I16, _I32, _I64)
_BYTES = [bytes([number]) for number in range(256)]
_FIXED = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}  # lengths; a boolean field has none, one in a list has

# Field ids of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_VERSION, _SCHEMA, _ROWS, _GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS = range(1, 8)
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, _META, _PAGE_INDEXES = 2, 3, (4, 5, 6, 7)
_COMPRESSED_SIZE, _DATA, _INDEX, _DICTIONARY, _BLOOM, _BLOOM_LENGTH = 7, 9, 10, 11, 14, 15
_KNOWN = {"file": range(1, 8), "row group": range(1, 8), "chunk": range(2, 8), "column": range(1, 18)}
_SCHEMA_KEYS = (b"ARROW:schema", b"org.apache.spark.sql.parquet.row.metadata")


class NotJoinable(Exception):
    """These files may be sound, but have to be joined by decoding them. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A file's footer. The `size` bytes after the leading magic are what its row groups need; `groups` are the ones
    with rows, already placed where these bytes will be in the target; `alike` is what all files have to agree on."""

    path: str
    meta: Struct
    groups: list[Struct]
    size: int
    alike: object


def join_parquet(sources: Sequence[str], target: str) -> tuple[int, int]:
    """Make the new file `target` of all row groups of all sources in order; returns (checksum, size).

    NotJoinable before anything is written if the files are not alike enough; DamagedError if one is malformed.
    The target is not made durable here, and is left as it is on failure.
    """
    files: list[_Source] = []
    for path in sources:
        files.append(_read(path, sum(file.size for file in files)))
        if files[-1].alike != files[0].alike:
            raise NotJoinable(f"the schemas or the writers of {files[0].path} and {path} differ")
    footer = _joined_footer(files)
    with open(target, "xb", buffering=0) as out:
        crc = size = 0
        for part in _parts(files, footer):
            write_all(out.fileno(), part)
            crc, size = checksum(part, crc), size + len(part)
    return crc, size


def _parts(files: list[_Source], footer: bytes) -> Iterator[bytes | memoryview]:
    """The bytes of the target; a part is gone when the next is asked for."""
    yield _MAGIC
    buffer = memoryview(bytearray(_CHUNK))
    for file in files:
        missing = file.size
        with open(file.path, "rb", buffering=0) as source:
            source.seek(len(_MAGIC))
            while missing:
                count = source.readinto(buffer[:missing])
                if not count:
                    _damaged(file.path, "it became shorter while being read")
                yield buffer[:count]
                missing -= count
    yield footer + len(footer).to_bytes(4, "little") + _MAGIC


def _read(path: str, delta: int) -> _Source:
    """Read a footer for a file whose bytes will move by `delta`."""
    with open(path, "rb") as file:
        raw, limit = _raw_footer(file, path)
    try:
        reader = _Reader(raw)
        meta = reader.struct(0)
        _only_known(meta, "file")
        if reader.at != len(raw):
            raise ValueError("there are bytes after the footer")
        groups = _structs(meta, _GROUPS)
        if sum(_field(group, _GROUP_ROWS) for group in groups) != _field(meta, _ROWS):
            raise ValueError("the row groups do not add up to the rows of the file")
        groups = [group for group in groups if _field(group, _GROUP_ROWS)]
        end = max((_place(group, limit, delta) for group in groups), default=len(_MAGIC))
        return _Source(path, meta, groups, end - len(_MAGIC), _alike(meta))
    except (ValueError, IndexError) as error:
        _damaged(path, str(error) if isinstance(error, ValueError) else "the footer ends too early", error)


def _raw_footer(file: BinaryIO, path: str) -> tuple[bytes, int]:
    """(footer, its place in the file)."""
    size = os.fstat(file.fileno()).st_size
    if size < 12:
        _damaged(path, "it is too short")
    head = file.read(4)
    file.seek(size - 8)
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] == b"PARE" or _LARGEST_FOOTER < length <= size - 12:
        raise NotJoinable(f"the footer of {path} is encrypted or too large")
    if head != _MAGIC or tail[4:] != _MAGIC or length > size - 12:
        _damaged(path, "the magic bytes or the length of the footer are wrong")
    file.seek(size - 8 - length)
    return file.read(length), size - 8 - length


def _alike(meta: Struct) -> object:
    """What is said once per file and has to be true of the row groups of all. The writer's name belongs to that:
    readers trust or distrust statistics by it. Of other key-value entries the first file's are kept."""
    entries = _structs(meta, _KEY_VALUES) if _KEY_VALUES in meta else []
    pairs = ((_field(entry, 1, [_BINARY]), entry.get(2)) for entry in entries)
    once = [meta.get(field) for field in (_VERSION, _SCHEMA, _CREATED_BY, _COLUMN_ORDERS)]
    return once, {key: value for key, value in pairs if key in _SCHEMA_KEYS}


def _place(group: Struct, limit: int, delta: int) -> int:
    """Move a row group's offsets and drop what cannot move; returns where its bytes end in the source."""
    _only_known(group, "row group")
    group.pop(_ORDINAL, None)  # only encryption needs it
    _shift(group, delta, _GROUP_OFFSET)
    end = len(_MAGIC)
    for chunk in _structs(group, _COLUMNS):
        _only_known(chunk, "chunk")
        for field in _PAGE_INDEXES:
            chunk.pop(field, None)
        column = _field(chunk, _META, [_STRUCT])
        _only_known(column, "column")
        dictionary = _field(column, _DICTIONARY) if _DICTIONARY in column else 0
        start = min(_field(column, _DATA), dictionary or limit)
        end = max(end, _end(start, _field(column, _COMPRESSED_SIZE), limit))
        if _BLOOM_LENGTH in column:
            end = max(end, _end(_field(column, _BLOOM), _field(column, _BLOOM_LENGTH), limit))
        else:
            column.pop(_BLOOM, None)
        _shift(chunk, delta, _CHUNK_OFFSET)
        _shift(column, delta, _DATA, _INDEX, _DICTIONARY, _BLOOM)
    return end


def _shift(struct: Struct, delta: int, *fields: int) -> None:
    for field in fields:
        if field in struct and (offset := _field(struct, field)) > 0:  # writers say 0 for "none"
            struct[field] = (_I64, offset + delta)


def _end(start: int, length: int, limit: int) -> int:
    if start < len(_MAGIC) or length < 0 or start + length > limit:
        raise ValueError(f"{length} bytes at {start} are not inside the data of the file")
    return start + length


def _only_known(struct: Struct, kind: str) -> None:
    if strange := [field for field in struct if field not in _KNOWN[kind]]:
        raise NotJoinable(f"field {strange[0]} of a {kind} may be about encryption, other files or offsets")


def _damaged(path: str, why: str, cause: Exception | None = None) -> NoReturn:
    raise DamagedError(
        f"{path} is not a sound Parquet file: {why}.",
        cure="Check the disk, then start the run again: the rows are produced again.",
    ) from cause


def _joined_footer(files: list[_Source]) -> bytes:
    rows = sum(_field(file.meta, _ROWS) for file in files)
    groups = [group for file in files for group in file.groups]
    out = bytearray()
    _write_struct(out, files[0].meta | {_ROWS: (_I64, rows), _GROUPS: (_LIST, (_STRUCT, groups))})
    if len(out) > _LARGEST_FOOTER:
        raise NotJoinable("the joined footer would be too large")
    return bytes(out)


# --- Thrift's compact protocol ---


def _field(struct: Struct, field: int, kinds: Sequence[int] = _INTEGERS) -> Any:
    kind, value = struct.get(field, (0, None))
    if kind not in kinds:
        raise ValueError(f"field {field} is missing or of another type")
    return value


def _structs(struct: Struct, field: int) -> list[Struct]:
    kind, values = _field(struct, field, [_LIST])
    if values and kind != _STRUCT:
        raise ValueError(f"field {field} is not a list of structs")
    return list(values)


class _Reader:
    """Decodes bytes that may be anything: a length is believed only if as many bytes are left."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise IndexError
        return self.data[start : self.at]

    def varint(self) -> int:
        result = shift = 0
        while shift < 70:
            byte = self.data[self.at]
            self.at += 1
            if byte < 0x80:  # mostly the first one
                return result | byte << shift
            result |= (byte & 0x7F) << shift
            shift += 7
        raise ValueError("a number is too long")

    def struct(self, depth: int) -> Struct:
        """Fields in the order they stand in. A boolean field is all in its type."""
        fields: Struct = {}
        field = 0
        while header := self.data[self.at]:
            self.at += 1
            kind, step = header & 15, header >> 4
            field = field + step if step else self.value(_I16, depth)
            if field in fields:
                raise ValueError(f"field {field} stands there twice")
            fields[field] = (kind, None if 0 < kind < _BYTE else self.value(kind, depth + 1))
        self.at += 1
        return fields

    def value(self, kind: int, depth: int) -> Any:
        """A number, bytes, a struct, or (type, values) of a list."""
        if kind in _INTEGERS:
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind == _BINARY or kind in _FIXED:
            return self.take(self.varint() if kind == _BINARY else _FIXED[kind])
        if depth > _DEEPEST or kind not in (_LIST, _STRUCT):
            raise ValueError(f"there is no type {kind}, or values are nested too deeply")
        if kind == _STRUCT:
            return self.struct(depth)
        header = self.take(1)[0]
        count = header >> 4 if header < 0xF0 else self.varint()
        if count > len(self.data) - self.at:  # nothing is shorter than a byte
            raise ValueError("a list is longer than the footer")
        return header & 15, [self.value(header & 15, depth + 1) for _ in range(count)]


def _varint(number: int) -> bytes:
    return _BYTES[number] if number < 0x80 else _BYTES[number & 0x7F | 0x80] + _varint(number >> 7)


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in struct.items():
        step = field - before if 0 < field - before < 16 else 0
        out.append(step << 4 | kind)
        if not step:
            _write_value(out, _I16, field)
        before = field
        if kind > _FALSE:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        out += _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == _STRUCT:
        _write_struct(out, value)
    elif kind == _LIST:
        element, values = value
        out.append(min(len(values), 15) << 4 | element)
        out += _varint(len(values)) if len(values) >= 15 else b""
        for each in values:
            _write_value(out, element, each)
    else:
        out += _varint(len(value)) + value if kind == _BINARY else value
