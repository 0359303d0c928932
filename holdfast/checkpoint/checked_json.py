"""A line that says what follows, then JSON: manifests, checkpoints of operators outside of regions, the index of an export.

    <magic> <version> crc32=<eight hexadecimal digits>
    {<JSON object, keys sorted, one line per field>}

Reading trusts nothing. No byte of the body is looked at before its checksum fits, and every value is asked for as what it
should be: a `Field` knows where it stands, so that a wrong one is told by its place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from holdfast.durable import checksum
from holdfast.errors import DamagedError, MismatchError

CURE = "Nothing was changed. Restore it from a backup, or start from another checkpoint."

T = TypeVar("T")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


def encode(magic: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes to be stored. A line for each field: a chain of many segments would be mostly blanks if all were
    indented."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(fields[name], sort_keys=True, separators=(',', ':'))}"
        for name in sorted(fields)
    ]
    body = ("{\n" + ",\n".join(lines) + "\n}").encode()
    return f"{magic} {version} crc32={checksum(body):08x}\n".encode() + body


def decode(data: bytes, magic: str, version: int, where: str) -> tuple[int, Field]:
    """(the version it was written in, its content); `where` names it in errors. `version`: the newest that is known."""
    header, newline, body = data.partition(b"\n")
    words = header.decode("ascii", "replace").split(" ")
    if not newline or len(words) != 3 or words[0] != magic or not _VERSION.fullmatch(words[1]):
        raise damaged(where, f"it does not begin with the header of a {magic}")
    if int(words[1]) > version:
        raise MismatchError(
            f"{where} has format {words[1]}; this holdfast reads formats up to {version}.",
            cure="Use the newer holdfast that wrote it.",
        )
    if words[2] != f"crc32={checksum(body):08x}":
        raise damaged(where, "its checksum does not match")
    return int(words[1]), parse(body, where)


def parse(body: bytes, where: str) -> Field:
    """JSON without a header: nothing but its form is known to be right."""
    try:
        return Field(json.loads(body, object_pairs_hook=_once, parse_constant=_refuse), where)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"its content is no JSON ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which no name occurs twice: another reader might believe the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


class Field:
    """A value in JSON, and where it stands. Every method raises DamagedError if it is not what it is asked for as.

    Not a dataclass, and its place is put together only when it is told: a manifest may have ten thousand segments.
    """

    __slots__ = ("_above", "_name", "value")

    def __init__(self, value: Any, name: str | int, above: Field | None = None) -> None:
        """`name`: within the object or list above; of the whole what errors call it."""
        self.value = value
        self._name = name
        self._above = above

    def __getitem__(self, name: str) -> Field:
        found = self.get(name)
        if found is None:
            raise self.wrong(f"has no {name!r}")
        return found

    def get(self, name: str) -> Field | None:
        """A field of an object; None if it is missing, or null."""
        value = self._as(dict, "an object").get(name)
        return None if value is None else Field(value, name, self)

    def optional(self, name: str, read: Callable[[Field], T]) -> T | None:
        """A field of an object as `read` reads it; None if it is missing, or null."""
        found = self.get(name)
        return None if found is None else read(found)

    def members_of(self, name: str) -> dict[str, Field]:
        """The fields of an object in this one; none if it is missing."""
        return self.optional(name, Field.members) or {}

    def items_of(self, name: str) -> list[Field]:
        """The elements of a list in this object; none if it is missing."""
        return self.optional(name, Field.items) or []

    def members(self) -> dict[str, Field]:
        """The fields of an object, in the order in which they stand."""
        return {name: Field(value, name, self) for name, value in self._as(dict, "an object").items()}

    def items(self, count: int | None = None) -> list[Field]:
        """The elements of a list; `count`: how many there must be."""
        values = self._as(list, "a list")
        if count is not None and len(values) != count:
            raise self.wrong(f"has {len(values)} elements instead of {count}")
        return [Field(value, number, self) for number, value in enumerate(values)]

    def text(self) -> str:
        return self._as(str, "a text")

    def whole(self, least: float = 0, most: float = math.inf) -> int:
        """A whole number from `least` to `most`."""
        number = self._as(int, "a whole number")
        if not least <= number <= most:
            raise self.wrong(f"is {number}, which cannot be")
        return number

    def number(self) -> float:
        """Any number that is finite."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return float(self.value)
        found = self._as(float, "a number")
        if not math.isfinite(found):
            raise self.wrong(f"is {found}, which cannot be")
        return found

    def wrong(self, why: str) -> DamagedError:
        names: list[str] = []
        field = self
        while field._above is not None:
            names.insert(0, str(field._name))
            field = field._above
        return damaged(str(field._name), f"{'.'.join(names) or 'it'} {why}")

    def _as(self, kind: type[T], name: str) -> T:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.wrong(f"is not {name}")
        return self.value


def damaged(where: str, why: str) -> DamagedError:
    return DamagedError(f"{where} is damaged: {why}.", cure=CURE)
