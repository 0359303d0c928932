"""Frozen dataclasses as JSON and back, strictly: manifests, checkpoints outside of regions, the index of an export.

    <magic> <version> crc32=<eight hexadecimal digits>
    {<JSON object, keys sorted, one line per field>}

Fields have the names they have in the class. What is empty is left out, a segment is a list of its fields, a class with
`to_json` and `from_json` has the form it likes. Reading trusts nothing: no byte of the body is looked at before its checksum
fits, and every value must be what its annotation says; whole numbers are never negative. Damage is named by its place. Fields
that nobody knows are passed over: a change that older readers must not miss raises the version.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.durable import checksum
from holdfast.errors import DamagedError, MismatchError
from holdfast.store.base import SegmentRef

CURE = "Nothing was changed. Restore it from a backup, or start from another checkpoint."

T = TypeVar("T")
Upgrade = Callable[[int, Any], Any]
"""Makes the content of an older version what it would be in the present one."""
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


# --- writing ------------------------------------------------------------------------------------------------------------


def encode(magic: str, version: int, value: Any) -> bytes:
    """The bytes to be stored. A line for each field: a chain of many segments would be mostly blanks if all were
    indented."""
    content = plain(value)
    lines = [
        f"{json.dumps(name)}: {json.dumps(content[name], sort_keys=True, separators=(',', ':'))}"
        for name in sorted(content)
    ]
    body = ("{\n" + ",\n".join(lines) + "\n}").encode()
    return f"{magic} {version} crc32={checksum(body):08x}\n".encode() + body


def plain(value: Any) -> Any:
    """A value as data for JSON. ValueError if it could not be read again."""
    if isinstance(value, SegmentRef):
        return [value.entry, value.key, value.size, value.crc]
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if hasattr(value, "to_json"):
        return value.to_json()
    if not is_dataclass(value):
        return None if value is None else _leaf(type(value), value)
    held = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: plain(own) for each, own in held if own not in (None, (), {}) or _is_required(each)}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


# --- reading ------------------------------------------------------------------------------------------------------------


def decode(
    kind: type[T], data: bytes, magic: str, version: int, where: str, upgrade: Upgrade | None = None
) -> T:
    """The value that `encode` was given; `where` names it in errors. `version`: the newest that is known."""
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
    return parse(kind, body, int(words[1]), where, upgrade)


def parse(kind: type[T], body: bytes, version: int, where: str, upgrade: Upgrade | None = None) -> T:
    """The same of a body of that version without its header."""
    try:
        content = json.loads(body, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"its content is no JSON ({error})") from error
    try:
        found: T = typed(kind, upgrade(version, content) if upgrade else content)
        return found
    except Wrong as error:
        raise damaged(where, error.sentence) from error
    except (TypeError, AttributeError, LookupError) as error:  # what was to be upgraded is of no version
        raise damaged(where, f"its content is not what it should be ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which no name occurs twice: another reader might believe the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


class Wrong(ValueError):
    """A value is not what its annotation says. On its way up it learns where that is."""

    def __init__(self, why: str, *place: object) -> None:
        super().__init__(why)
        self.why = why
        self.place = place

    @property
    def sentence(self) -> str:
        return f"{'.'.join(map(str, self.place)) or 'it'} {self.why}"


def typed(hint: Any, value: Any) -> Any:
    """Data of JSON as what an annotation says. Raises Wrong if it is not that."""
    if hint is SegmentRef:
        return _segment(value)
    hint = getattr(hint, "__supertype__", hint)
    if hint in _LEAVES:
        return _leaf(hint, value)
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return tuple(_at(number, args[0], each) for number, each in enumerate(_as(list, "a list", value)))
    if origin is Mapping:
        return {name: _at(name, args[1], each) for name, each in _as(dict, "an object", value).items()}
    if origin is Literal:
        if value not in args:
            raise Wrong(f"is {value!r}, which nobody knows")
        return value
    if origin in (Union, UnionType):
        return None if value is None else typed(_chosen(args, value), value)
    return _self_made(hint, value) if hasattr(hint, "from_json") else _record(hint, value)


_LEAVES = {str: "a text", int: "a whole number", float: "a number"}


def _leaf(kind: Any, value: Any) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or kind not in _LEAVES:
        raise Wrong(f"is not {_LEAVES.get(kind, 'to be stored')}")
    if (kind is int and value < 0) or (kind is float and not math.isfinite(value)):
        raise Wrong(f"is {value}, which cannot be")
    return value


def _as(kind: type[T], name: str, value: Any) -> T:
    if not isinstance(value, kind):
        raise Wrong(f"is not {name}")
    return value


def _at(place: object, hint: Any, value: Any) -> Any:
    try:
        return typed(hint, value)
    except Wrong as error:
        error.place = (place, *error.place)
        raise


def _chosen(options: tuple[Any, ...], value: Any) -> Any:
    """Which class of a union it is: the only one, or the one that has its `kind`."""
    classes = [each for each in options if each is not type(None)]
    if len(classes) == 1:
        return classes[0]
    kind = _as(dict, "an object", value).get("kind")
    for each in classes:
        if kind in get_args(_hints(each)["kind"]):
            return each
    raise Wrong(f"is {kind!r}, which nobody knows", "kind")


def _record(kind: Any, value: Any) -> Any:
    """A dataclass. Absent and null are the same."""
    given, hints, found = _as(dict, "an object", value), _hints(kind), {}
    for each in fields(kind):
        if given.get(each.name) is not None:
            found[each.name] = _at(each.name, hints[each.name], given[each.name])
        elif _is_required(each):
            raise Wrong(f"has no {each.name!r}")
    try:
        return kind(**found)
    except ValueError as error:
        raise Wrong(str(error)) from error


def _self_made(kind: Any, value: Any) -> Any:
    """A class that knows its own data."""
    try:
        return kind.from_json(value)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise Wrong(f"is no {kind.__name__} ({error})") from error


def _segment(value: Any) -> SegmentRef:
    """Written out: a manifest may have ten thousand of them."""
    if type(value) is list and [*map(type, value)] == [str, str, int, int] and min(value[2:]) >= 0:
        return SegmentRef(*value)
    raise Wrong("is not [entry, key, size, checksum]")


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def damaged(where: str, why: str) -> DamagedError:
    return DamagedError(f"{where} is damaged: {why}.", cure=CURE)
