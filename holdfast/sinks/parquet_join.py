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
from holdfast.state.columns.thrift import (
    BINARY,
    FALSE,
    I16,
    I64,
    INTEGERS,
    LIST,
    STRUCT,
    Reader,
    Struct,
    field_of,
    structs_of,
)

_MAGIC = b"PAR1"
_CHUNK = 1 << 20
_BYTES = [bytes([number]) for number in range(256)]
_LARGEST_FOOTER = 64 << 20  # decoded it is many times as large; beyond, let pyarrow have it

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
        reader = Reader(raw)
        meta = reader.struct(0)
        _only_known(meta, "file")
        if reader.at != len(raw):
            raise ValueError("there are bytes after the footer")
        groups = structs_of(meta, _GROUPS)
        if sum(field_of(group, _GROUP_ROWS) for group in groups) != field_of(meta, _ROWS):
            raise ValueError("the row groups do not add up to the rows of the file")
        groups = [group for group in groups if field_of(group, _GROUP_ROWS)]
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
    entries = structs_of(meta, _KEY_VALUES) if _KEY_VALUES in meta else []
    pairs = ((field_of(entry, 1, [BINARY]), entry.get(2)) for entry in entries)
    once = [meta.get(field) for field in (_VERSION, _SCHEMA, _CREATED_BY, _COLUMN_ORDERS)]
    return once, {key: value for key, value in pairs if key in _SCHEMA_KEYS}


def _place(group: Struct, limit: int, delta: int) -> int:
    """Move a row group's offsets and drop what cannot move; returns where its bytes end in the source."""
    _only_known(group, "row group")
    group.pop(_ORDINAL, None)  # only encryption needs it
    _shift(group, delta, _GROUP_OFFSET)
    end = len(_MAGIC)
    for chunk in structs_of(group, _COLUMNS):
        _only_known(chunk, "chunk")
        for field in _PAGE_INDEXES:
            chunk.pop(field, None)
        column = field_of(chunk, _META, [STRUCT])
        _only_known(column, "column")
        dictionary = field_of(column, _DICTIONARY) if _DICTIONARY in column else 0
        start = min(field_of(column, _DATA), dictionary or limit)
        end = max(end, _end(start, field_of(column, _COMPRESSED_SIZE), limit))
        if _BLOOM_LENGTH in column:
            end = max(end, _end(field_of(column, _BLOOM), field_of(column, _BLOOM_LENGTH), limit))
        else:
            column.pop(_BLOOM, None)
        _shift(chunk, delta, _CHUNK_OFFSET)
        _shift(column, delta, _DATA, _INDEX, _DICTIONARY, _BLOOM)
    return end


def _shift(struct: Struct, delta: int, *fields: int) -> None:
    for field in fields:
        if field in struct and (offset := field_of(struct, field)) > 0:  # writers say 0 for "none"
            struct[field] = (I64, offset + delta)


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
    rows = sum(field_of(file.meta, _ROWS) for file in files)
    groups = [group for file in files for group in file.groups]
    out = bytearray()
    _write_struct(out, files[0].meta | {_ROWS: (I64, rows), _GROUPS: (LIST, (STRUCT, groups))})
    if len(out) > _LARGEST_FOOTER:
        raise NotJoinable("the joined footer would be too large")
    return bytes(out)


# --- Thrift's compact protocol ---


def _varint(number: int) -> bytes:
    return _BYTES[number] if number < 0x80 else _BYTES[number & 0x7F | 0x80] + _varint(number >> 7)


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in struct.items():
        step = field - before if 0 < field - before < 16 else 0
        out.append(step << 4 | kind)
        if not step:
            _write_value(out, I16, field)
        before = field
        if kind > FALSE:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in INTEGERS:
        out += _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind == LIST:
        element, values = value
        out.append(min(len(values), 15) << 4 | element)
        out += _varint(len(values)) if len(values) >= 15 else b""
        for each in values:
            _write_value(out, element, each)
    else:
        out += _varint(len(value)) + value if kind == BINARY else value
