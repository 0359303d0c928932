"""JSON values that are no strings where the schema wants one: their own characters, `1.50` and not `1.5`.

Spark's reader of files takes them so; its `from_json`, and Python's parser, make a number of them first and write that. So such
values are put into quotes before one of these parses the line. Lines without any are found by one regular expression and left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = r'"(?:[^"\\]|\\.)*"'
_ODD = r"(?:-?[0-9]+[.eE]|-0|[\[{NI]|-I)"
"""How a value begins that would be written in another way: fractions, nested ones, special numbers. Whole numbers stay as they are."""
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class ExactStrings:
    """What there is to do for a schema. `odd`: matches every line that may have such a value."""

    schema: pa.Schema
    odd: str

    def quoted(self, texts: Any) -> Any:
        """The lines (a string Array) with such values in quotes."""
        found = pc.match_substring_regex(texts, self.odd).fill_null(False)
        if not pc.any(found).as_py():
            return texts
        changed = [self.quoted_line(text) for text in texts.filter(found).to_pylist()]
        return pc.replace_with_mask(texts, found, pa.array(changed, texts.type))

    def quoted_line(self, text: str) -> str:
        """One line; as it is if it is no JSON."""
        pieces, done = [], 0
        try:
            for begin, end in _spans(text, _next(text, 0), pa.struct(list(self.schema))):
                pieces += [text[done:begin], json.dumps(text[begin:end])]
                done = end
        except (ValueError, IndexError, StopIteration, RecursionError):
            return text
        return "".join([*pieces, text[done:]])


@cache
def exact_strings(schema: pa.Schema) -> ExactStrings | None:
    """None: the schema wants no strings."""
    strings, holders = set(), set()
    for name, kind in _fields(list(schema)):
        if pa.types.is_string(kind):
            strings.add(name)
        elif _holds_strings(kind):
            holders.add(name)
    if not strings and not holders:
        return None
    # In a list or map: the first value behind strings and nulls that is neither.
    held = rf"[\[{{][ \t]*(?:(?:{_TEXT}|null)[ \t]*[,:][ \t]*)*{_ODD}"
    ways = [(strings, _ODD), (holders, held)]
    odd = [
        rf'"(?:{"|".join(map(_escaped, sorted(names)))})"[ \t]*:[ \t]*{value}'
        for names, value in ways
        if names
    ]
    return ExactStrings(schema, "|".join(odd))


def _escaped(name: str) -> str:
    return re.escape(json.dumps(name, ensure_ascii=False)[1:-1])


def _fields(fields: list[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """All fields of all structs, at any depth."""
    for field in fields:
        yield field.name, field.type
        yield from _fields(_inner(field.type))


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return _inner(kind.value_type)
    return _inner(kind.item_type) if pa.types.is_map(kind) else []


def _holds_strings(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return pa.types.is_string(kind.value_type) or _holds_strings(kind.value_type)
    return pa.types.is_map(kind) and (pa.types.is_string(kind.item_type) or _holds_strings(kind.item_type))


def _spans(text: str, at: int, kind: pa.DataType | None) -> Iterator[tuple[int, int]]:
    """Where values stand that are no strings and should be, of the value at `at`."""
    if kind is None:
        return
    if pa.types.is_string(kind):
        if text[at] not in '"n':
            yield at, _end(text, at)
    elif text[at] == "{" and (pa.types.is_struct(kind) or pa.types.is_map(kind)):
        known = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else None
        for name, begin in _members(text, at):
            yield from _spans(text, begin, kind.item_type if known is None else known.get(name))
    elif text[at] == "[" and pa.types.is_list(kind):
        for begin in _elements(text, at):
            yield from _spans(text, begin, kind.value_type)


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Names of an object, and where their values begin."""
    at = _next(text, at + 1)
    while text[at] == '"':
        name, at = _DECODER.raw_decode(text, at)
        at = _next(text, at)
        if text[at] != ":":
            raise ValueError("no colon")
        at = _next(text, at + 1)
        yield name, at
        at = _next(text, _end(text, at))
        if text[at] != ",":
            break
        at = _next(text, at + 1)
    if text[at] != "}":
        raise ValueError("no end of the object")


def _elements(text: str, at: int) -> Iterator[int]:
    at = _next(text, at + 1)
    while text[at] != "]":
        yield at
        at = _next(text, _end(text, at))
        if text[at] == ",":
            at = _next(text, at + 1)
        elif text[at] != "]":
            raise ValueError("no end of the list")


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _next(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()
