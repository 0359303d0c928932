"""What an operator was told, as text that can be compared from run to run: expressions, settings, the code of functions.

The code of a Python function is its own bytecode, with constants, defaults and plain values that it closes over: an eight
digit digest behind its name. What it calls is not looked at.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import CodeType
from typing import Any

import pyarrow as pa

DIGEST = re.compile(r"⟨[0-9a-f]{8}⟩")
_LAMBDA_VARIABLE = re.compile(r"\b([a-zA-Z]+_)(\d+)\b")
_RANDOM = re.compile(r"\b(randn?|random|uuid|shuffle)\(([^()]*?,\s*)?-?\d+L?\)")
_PLAIN = (str, bytes, int, float, bool, type(None))


def text_of(value: Any) -> str:
    """The same text for the same value in every process."""
    if isinstance(value, str):
        return value
    if isinstance(value, (Enum, *_PLAIN)):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{text_of(name)}: {text_of(each)}" for name, each in value.items())
    if isinstance(value, set | frozenset):
        return ", ".join(sorted(map(text_of, value)))
    if isinstance(value, pa.Schema):
        return ", ".join(f"{field.name} {field.type}" for field in value)
    if isinstance(value, tuple | list):
        return ", ".join(_inner(each) for each in value)
    return _other(value)


def shown(value: Any, longest: int = 80) -> str:
    """The same in one line, for people."""
    text = " ".join(DIGEST.sub("", text_of(value)).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _inner(value: Any) -> str:
    """Of a list within a list the values that are there, in a row."""
    if isinstance(value, tuple | list):
        return " ".join(text_of(each) for each in value if each not in (None, "", ()))
    return text_of(value)


def _other(value: Any) -> str:
    if isinstance(value, pa.DataType):
        return str(value)
    if isinstance(value, pa.Table):
        return f"a table of {', '.join(value.column_names)}"
    if type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark."):
        return _column(str(value))
    if isinstance(value, functools.partial):
        if value.func is copy.deepcopy:
            return text_of(type(value.args[0]))  # an operator that was given as an instance
        given = [text_of(each) for each in (*value.args, *value.keywords.values())]
        return f"{text_of(value.func)}({', '.join(given)})"
    if isinstance(value, type):
        return f"{value.__name__}⟨{_digest(_class_code(value))}⟩"
    if hasattr(value, "__code__"):
        name = "a lambda" if value.__name__ == "<lambda>" else value.__name__
        return f"{name}⟨{_digest(_function_code(value))}⟩"
    if is_dataclass(value):
        inside = {field.name: getattr(value, field.name) for field in fields(value)}
        said = [field_text(name, each) for name, each in inside.items() if each not in (None, (), False)]
        return f"{type(value).__name__.removesuffix('Spec').lower()} ({', '.join(' '.join(one) for one in said)})"
    return (
        text_of(type(value))
        if not type(value).__module__.startswith(("holdfast.", "builtins"))
        else (type(value).__name__)
    )


def field_text(name: str, value: Any) -> tuple[str, str]:
    """A field and its value for people: durations in seconds, under a name without the unit."""
    for suffix, unit in (("_us", 1e-6), ("_s", 1.0)):
        if name.endswith(suffix):
            return name.removesuffix(suffix), _seconds(value, unit)
    return name, text_of(value)


def _seconds(value: Any, unit: float) -> str:
    if isinstance(value, tuple):
        return ", ".join(filter(None, (_of_pair(each, unit) for each in value)))
    return f"{value * unit:g} s" if isinstance(value, int | float) else text_of(value)


def _of_pair(pair: Any, unit: float) -> str:
    """(source, duration); no source: of all."""
    if isinstance(pair, tuple) and len(pair) == 2:
        return f"{pair[0]} {_seconds(pair[1], unit)}".strip()
    return _seconds(pair, unit)


def _column(text: str) -> str:
    """Of a Column what the user wrote: without numbers that Spark drew or counted."""
    text = text.removeprefix("Column<'").removesuffix("'>")
    if "->" in text:
        known: dict[str, str] = {}
        text = _LAMBDA_VARIABLE.sub(lambda found: known.setdefault(found[0], f"{found[1]}{len(known)}"), text)
    return _RANDOM.sub(r"\1(\2…)", text)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _function_code(fn: Any) -> str:
    closed = [_cell(cell) for cell in fn.__closure__ or ()]
    given = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values(), *closed)
    return repr((_code(fn.__code__), [_if_plain(each) for each in given]))


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not filled yet


def _if_plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return repr([_if_plain(each) for each in value])
    return repr(value) if isinstance(value, _PLAIN) else type(value).__name__


def _code(code: CodeType) -> str:
    return repr((code.co_code.hex(), code.co_names, [_constant(each) for each in code.co_consts]))


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code(value)
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _class_code(cls: type) -> str:
    """The functions and plain attributes of a class and of those it derives from, as far as they are the user's."""
    found = []
    for one in cls.__mro__:
        if one is object or one.__module__.startswith("holdfast."):
            continue
        for name, value in sorted(vars(one).items()):
            fn: Callable[..., Any] | None = getattr(value, "__func__", None) or getattr(value, "fget", value)
            if hasattr(fn, "__code__"):
                found.append((name, _function_code(fn)))
            elif isinstance(value, _PLAIN) and not name.startswith("__"):
                found.append((name, repr(value)))
    return repr(found)
