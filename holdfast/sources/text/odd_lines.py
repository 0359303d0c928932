"""Lines that Spark's readers take although they are no row: a csv line whose quoted field goes on behind its end, and a JSON array,
which they make several rows of. They are malformed, whoever reads them.

Tasks that read lines mark them (`odd`). Before Spark's own reader gets whole files, they are looked through for what may be such
a line (`may_have`): then tasks read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sources.text.values import ends_open

_BLOCK_BYTES = 4 << 20
_QUOTE, _COMMA, _NEWLINE, _RETURN = b'",\n\r'
_PLAIN_CSV = r'^("[^"\\]*"|[^",]*)(,("[^"\\]*"|[^",]*))*$'
"""Lines whose quotes surely end, without options."""
_ARRAY = r"^\s*\["
_ARRAY_LINE = re.compile(rb"(?:^|[\r\n])[ \t]*\[")
_BEHIND_A_LINE = [end + begin for end in (b"\n", b"\r") for begin in (b"[", b" ", b"\t")]


def odd(texts: Any, kind: str, options: Mapping[str, str]) -> Any | None:
    """True for each such line (a string Array or ChunkedArray); None: there is none."""
    if kind == "json":
        found = pc.match_substring_regex(texts, _ARRAY).fill_null(False)
        return found if pc.any(found).as_py() else None
    if kind != "csv":
        return None
    lowered = {name.lower(): value for name, value in options.items()}
    quote = lowered.get("quote", '"')
    if not quote or not pc.any(pc.match_substring(texts, quote)).as_py():
        return None
    doubtful = pc.match_substring(texts, quote)
    if not lowered:
        doubtful = pc.and_(doubtful, pc.invert(pc.match_substring_regex(texts, _PLAIN_CSV)))
    at = np.flatnonzero(doubtful.fill_null(False).to_numpy(zero_copy_only=False))
    lines = texts.take(pa.array(at)).to_pylist()
    is_open = np.zeros(len(texts), dtype=bool)
    is_open[at] = [ends_open(line, lowered) for line in lines]
    return pa.array(is_open) if is_open.any() else None


def may_have(path: str, kind: str, options: Mapping[str, str]) -> bool:
    """Whether a file without compression may have such lines. A GB takes some tenths of a second."""
    if kind not in ("csv", "json"):
        return False
    with open(path, "rb") as file:
        while data := file.read(_BLOCK_BYTES):
            data += b"" if data.endswith(b"\n") else file.readline()
            if _array_in(data) if kind == "json" else _open_quote_in(data, options):
                return True
    return False


def _array_in(data: bytes) -> bool:
    is_plain = data.startswith(b"{") and not any(begin in data for begin in _BEHIND_A_LINE)
    return not is_plain and _ARRAY_LINE.search(data) is not None


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
