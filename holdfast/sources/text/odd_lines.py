"""Lines that Spark's readers take although they are no row: a csv line whose quoted field goes on behind its end, a JSON array,
which they make several rows of, and a JSON object with something behind it, which they leave out: a second object, where the end of a
line was lost. They are malformed, whoever reads them.

Tasks that read lines mark them (`odd`). Before Spark's own reader gets whole files, they are looked through for what may be such
a line (`may_have`): then tasks read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sources.text.values import ends_open

_BLOCK_BYTES = 4 << 20
_QUOTE, _COMMA, _NEWLINE, _RETURN = b'",\n\r'
_PLAIN_CSV = r'^("[^"\\]*"|[^",]*)(,("[^"\\]*"|[^",]*))*$'
"""Lines whose quotes surely end, without options."""
_OUTSIDE = r"""(?:[^{}"']|"(?:[^"\\]|\\.)*")*"""
_OBJECT = reduce(lambda inner, _: rf"\{{{_OUTSIDE}(?:{inner}{_OUTSIDE})*\}}", range(4), "(?:)")
_PLAIN_JSON = rf"^\s*(?:{_OBJECT}\s*)?$"
"""Lines that surely hold one object, up to four deep, or nothing."""
_BEHIND_A_LINE = [end + begin for end in (b"\n", b"\r") for begin in (b"[", b" ", b"\t")]
_CLOSING = {"{": "}", "[": "]"}
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[{}\[\]]""")


def odd(texts: Any, kind: str, options: Mapping[str, str]) -> Any | None:
    """True for each such line (a string Array or ChunkedArray); None: there is none."""
    if kind == "json":
        return _marks(texts, _doubtful_json(texts), lambda line: _is_no_object(line, options))
    if kind != "csv":
        return None
    lowered = {name.lower(): value for name, value in options.items()}
    quote = lowered.get("quote", '"')
    if not quote or not pc.any(pc.match_substring(texts, quote)).as_py():
        return None
    doubtful = pc.match_substring(texts, quote)
    if not lowered:
        doubtful = pc.and_(doubtful, pc.invert(pc.match_substring_regex(texts, _PLAIN_CSV)))
    return _marks(texts, doubtful, lambda line: ends_open(line, lowered))


def _marks(texts: Any, doubtful: Any, is_odd: Callable[[str], bool]) -> Any | None:
    at = np.flatnonzero(doubtful.fill_null(False).to_numpy(zero_copy_only=False))
    marks = np.zeros(len(texts), dtype=bool)
    marks[at] = [is_odd(line) for line in texts.take(pa.array(at)).to_pylist()]
    return pa.array(marks) if marks.any() else None


def _doubtful_json(texts: Any) -> Any:
    return pc.invert(pc.match_substring_regex(texts, _PLAIN_JSON))


def _is_no_object(line: str, options: Mapping[str, str]) -> bool:
    """Whether a line is an array, or goes on behind its first object. What is no JSON Spark refuses by itself."""
    if line.lstrip().startswith("["):
        return True
    ends: list[str] = []
    for token in _TOKEN.finditer(line):
        if token[0] in _CLOSING:
            ends.append(_CLOSING[token[0]])
        elif token[0] in "}]":
            if not ends or ends.pop() != token[0]:
                return False
            if not ends:
                return bool(line[token.end() :].strip()) and not _has_comments(options)
    return False


def _has_comments(options: Mapping[str, str]) -> bool:
    return any(name.lower() == "allowcomments" and value.lower() == "true" for name, value in options.items())


def may_have(path: str, kind: str, options: Mapping[str, str]) -> bool:
    """Whether a file without compression may have such lines. A GB takes some tenths of a second."""
    if kind not in ("csv", "json"):
        return False
    with open(path, "rb") as file:
        while data := file.read(_BLOCK_BYTES):
            data += b"" if data.endswith(b"\n") else file.readline()
            if _odd_json_in(data) if kind == "json" else _open_quote_in(data, options):
                return True
    return False


def _odd_json_in(data: bytes) -> bool:
    """Where every line begins with its object, and no brace but the one that ends it closes anything, a look at bytes is enough."""
    ends = data.count(b"}\n") + data.count(b"}\r") + data.endswith(b"}")
    if (
        ends == data.count(b"}")
        and data.startswith(b"{")
        and not any(begin in data for begin in _BEHIND_A_LINE)
    ):
        return False
    codes = np.frombuffer(data, np.uint8)
    offsets = np.append(0, np.flatnonzero((codes == _NEWLINE) | (codes == _RETURN)) + 1).astype(np.int32)
    offsets = pa.py_buffer(np.append(offsets, np.int32(len(data))))
    lines = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) // 4 - 1, [None, offsets, pa.py_buffer(data)]
    )
    return bool(pc.any(_doubtful_json(lines)).as_py())


def _open_quote_in(data: bytes, options: Mapping[str, str]) -> bool:
    """Whether the last quote of a line begins a field, or something is escaped, or other options make it hard to say."""
    quote = next((value for name, value in options.items() if name.lower() == "quote"), '"').encode()
    if not quote or quote not in data:
        return False
    if options or b'\\"' in data:
        return True
    codes = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(codes == _QUOTE)
    ends = np.append(np.flatnonzero((codes == _NEWLINE) | (codes == _RETURN)), len(codes))
    line = np.searchsorted(ends, quotes)
    is_last = np.append(line[1:] != line[:-1], True)
    before = np.where(quotes > 0, codes[quotes - 1], _NEWLINE)
    begins = (before == _COMMA) | (before == _NEWLINE) | (before == _RETURN)
    return bool((is_last & begins).any())
