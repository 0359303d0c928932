"""Fingerprints in manifests of versions 1 and 2, which held them as text. Nobody writes them any more.

    aggregate by=(word:string) agg=(n:count:int64,total:sum(qty):int64) groups=128

The names of columns stood in the text as they are. A part that is no field of its own belongs to the one before it, an
entry without a type to the one behind it: so names with blanks, commas and brackets in pairs are read as well.
"""

from __future__ import annotations

import ast
from typing import Any

from holdfast.operators.fingerprint import Fingerprint

_KINDS = {"top": "top_n"}
_LISTS = {"agg": "aggregates", "state": "variables", "rows": "rows"}
_FIELDS = {"ttl": "lifetime", "size": "size_us", "slide": "slide_us"}
_NUMBERS = ("n", "rows", "every", "size", "slide", "groups", "outputs")
_WORDS = (*_LISTS, *_FIELDS, *_NUMBERS, "by", "on", "order", "inputs", "delta", "of", "until")


def old_fingerprint(text: str) -> Fingerprint:
    """Never fails: what is not understood fits nothing."""
    kind, *words = _split(text, " ")
    if kind in ("source", "sink"):
        return Fingerprint(kind, {"class": " ".join(words)})
    try:
        frame = {"match": words.pop(0).removesuffix("Match").lower()} if kind == "join" else {}
        return _read(kind, frame, _fields(words))
    except (ValueError, SyntaxError, IndexError):
        return Fingerprint(kind, {"text": text})


def _read(kind: str, frame: dict[str, Any], fields: list[tuple[str, str]]) -> Fingerprint:
    entries: dict[str, dict[str, dict[str, Any]]] = {}
    for name, value in fields:
        if name in _LISTS and value.startswith("("):
            lists = [dict(_entry(name, each) for each in _listed(of)) for of in _split(value, " ")]
            inputs = [f"input {number}" for number in range(1, len(lists) + 1)]
            entries.update(zip(inputs if kind == "barrier" else [_LISTS[name]], lists, strict=True))
        elif not (name == "on" and value == "None" and kind in ("join", "keyed")):
            frame["key" if name == "by" else _FIELDS.get(name, name)] = _value(kind, name, value)
    return Fingerprint(_KINDS.get(kind, kind), frame, entries)


def _fields(words: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in words:
        name, is_field, value = word.partition("=")
        if is_field and name in _WORDS:
            found.append((name, value))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]} {word}")
    return found


def _value(kind: str, name: str, value: str) -> Any:
    if name == "by" and kind == "barrier":
        return tuple(_split(value[1:-1], ",")) if value != "()" else ()
    if name == "by":
        keys = tuple(tuple(_typed(each) for each in _listed(of)) for of in _split(value, " "))
        return keys if kind == "join" else keys[0]
    if name == "order":
        columns = _split(value[1:-1], ",")
        return tuple((column.removeprefix("-"), column.startswith("-")) for column in columns)
    if name == "inputs":
        return tuple(value.split("+"))
    if name == "on" and kind == "join":
        return ast.literal_eval(value)
    return int(value) if name in _NUMBERS else value


def _entry(name: str, text: str) -> tuple[str, dict[str, Any]]:
    if name == "state":
        variable, _, declared = text.partition(":")
        form, _, inside = declared.removesuffix(")").partition("(")
        parts = [part.partition("=") for part in inside.split(",")]
        of = tuple(part for part, is_length, _ in parts if not is_length)
        return variable, {
            "form": form,
            "type": of,
            **{part: int(n) for part, is_length, n in parts if is_length},
        }
    column, kind = _typed(text)
    if name == "rows":
        return column, {"type": kind}
    output, computed = _typed(column)
    function, _, of_column = computed.removesuffix(")").partition("(")
    return output, {"function": function, **({"column": of_column} if of_column else {}), "type": kind}


def _listed(text: str) -> list[str]:
    """The entries of a list in parentheses."""
    found: list[str] = []
    waiting = ""
    for piece in _split(text[1:-1], ","):
        if len(_split(waiting + piece, ":")) > 1:
            found.append(waiting + piece)
            waiting = ""
        else:
            waiting += f"{piece},"
    return found


def _typed(text: str) -> tuple[str, str]:
    *name, kind = _split(text, ":")
    return ":".join(name), kind


def _split(text: str, separator: str) -> list[str]:
    """The pieces between separators that are in no brackets."""
    pieces, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([<{") - (sign in ")]>}")
        if sign == separator and not depth:
            pieces.append(text[start:at])
            start = at + 1
    return [*pieces, text[start:]]
