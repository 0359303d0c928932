"""Thrift's compact protocol, read from bytes that may be anything: what frames the rows of a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Struct = dict[int, tuple[int, Any]]
"""(wire type, value) by number of the field."""

_DEEPEST = 32

# Wire types; parquet.thrift has no sets and maps.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
INTEGERS = (I16, I32, I64)
FIXED = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8}  # lengths; a boolean field has none, one in a list has


def field_of(struct: Struct, field: int, kinds: Sequence[int] = INTEGERS) -> Any:
    """ValueError if it is not there, or of another type."""
    kind, value = struct.get(field, (0, None))
    if kind not in kinds:
        raise ValueError(f"field {field} is missing or of another type")
    return value


def structs_of(struct: Struct, field: int) -> list[Struct]:
    """The elements of a list of structs."""
    kind, values = field_of(struct, field, [LIST])
    if values and kind != STRUCT:
        raise ValueError(f"field {field} is not a list of structs")
    return list(values)


class Reader:
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
            field = field + step if step else self.value(I16, depth)
            if field in fields:
                raise ValueError(f"field {field} stands there twice")
            fields[field] = (kind, None if 0 < kind < BYTE else self.value(kind, depth + 1))
        self.at += 1
        return fields

    def value(self, kind: int, depth: int) -> Any:
        """A number, bytes, a struct, or (type, values) of a list."""
        if kind in INTEGERS:
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind == BINARY or kind in FIXED:
            return self.take(self.varint() if kind == BINARY else FIXED[kind])
        if depth > _DEEPEST or kind not in (LIST, STRUCT):
            raise ValueError(f"there is no type {kind}, or values are nested too deeply")
        if kind == STRUCT:
            return self.struct(depth)
        header = self.take(1)[0]
        count = header >> 4 if header < 0xF0 else self.varint()
        if count > len(self.data) - self.at:  # nothing is shorter than a byte
            raise ValueError("a list is longer than the footer")
        return header & 15, [self.value(header & 15, depth + 1) for _ in range(count)]
