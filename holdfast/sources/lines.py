"""Lines of text files as rows: where each begins, found with NumPy instead of a loop per line.

What a row is follows Spark's readers with multiLine=false: "\\n", "\\r\\n" and a lone "\\r" end a line; the last line
needs no end; csv and json skip blank lines, csv skips comments and the first line that is left if it is a header;
text keeps every line; a UTF-8 byte order mark at the beginning is not part of the first line.

Offsets are offsets in the uncompressed bytes. Used in the driver (to cut) and in tasks (to read).
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError

BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Mark(NamedTuple):
    """A place in a file: so many rows, bytes and lines lie before it. (0, 0, 0) is before any header."""

    row: int
    offset: int
    line: int


BEGINNING = Mark(0, 0, 0)


@dataclass(frozen=True, slots=True)
class LineRules:
    """Which lines are rows. `kind` is csv, json or text."""

    kind: str
    header: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines. `begin` is the mark before them, `end` behind them; `starts`/`ends` are the rows inside `data`."""

    begin: Mark
    end: Mark
    data: Bytes
    starts: Ints
    ends: Ints
    lines: Ints
    """Number of each row's line within the block, from 0."""

    def mark(self, index: int) -> Mark:
        """The mark before the block's row `index`."""
        return Mark(
            self.begin.row + index,
            self.begin.offset + int(self.starts[index]),
            self.begin.line + int(self.lines[index]),
        )


def open_lines(path: str) -> BinaryIO:
    """The uncompressed bytes of a file; gzip is known by its suffix, as in Spark."""
    if path.endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb")


def blocks(
    path: str,
    rules: LineRules,
    begin: Mark = BEGINNING,
    end_offset: int | None = None,
    block_bytes: int | None = None,
) -> Iterator[Block]:
    """The file's lines from `begin` up to `end_offset` (a line's beginning; None: the file's end), block by block."""
    mark, header_due = begin, rules.header and begin.offset == 0
    with open_lines(path) as file:
        pieces = _whole_lines(file, begin.offset, end_offset, block_bytes or BLOCK_BYTES)
        while True:
            with _readable(path, mark):
                data = next(pieces, None)
            if data is None:
                return
            block, header_due = _parse(data, rules, mark, header_due)
            mark = block.end
            yield block


@contextlib.contextmanager
def _readable(path: str, mark: Mark) -> Iterator[None]:
    """Say which file it is whose compressed bytes end too early or are damaged."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path}: the compressed file is cut off or damaged, behind line {mark.line}: {error}.",
            cure="Put the whole file there, under a name that begins with a dot until it is complete.",
        ) from error


def _whole_lines(file: BinaryIO, offset: int, end_offset: int | None, size: int) -> Iterator[bytes]:
    """Pieces of about `size` bytes that end with a line's end or with the range."""
    if offset:
        file.seek(offset)
    rest = b""
    while True:
        want = size if end_offset is None else min(size, end_offset - offset)
        chunk = file.read(want) if want > 0 else b""
        offset += len(chunk)
        if not chunk:
            if rest:
                yield rest
            return
        data = rest + chunk if rest else chunk
        cut = _last_line_end(data)
        rest = data[cut:]
        if cut:
            yield data[:cut]


def _last_line_end(data: bytes) -> int:
    """Offset behind the last line that surely ended; a "\\r" at the very end may be half of "\\r\\n"."""
    newline = data.rfind(b"\n")
    if newline >= 0:
        return newline + 1
    return data.rfind(b"\r", 0, len(data) - 1) + 1


def _parse(data: bytes, rules: LineRules, mark: Mark, header_due: bool) -> tuple[Block, bool]:
    view = np.frombuffer(data, dtype=np.uint8)
    starts, ends = line_spans(view)
    count = len(starts)
    if mark.offset == 0 and data.startswith(_BOM):
        starts[0] += len(_BOM)
    lines = np.arange(count, dtype=np.int64)
    if rules.kind != "text":
        keep = _real_rows(view, starts, ends, rules)
        if not keep.all():
            starts, ends, lines = starts[keep], ends[keep], lines[keep]
    if header_due and len(starts):
        starts, ends, lines, header_due = starts[1:], ends[1:], lines[1:], False
    end = Mark(mark.row + len(starts), mark.offset + len(data), mark.line + count)
    return Block(mark, end, view, starts, ends, lines), header_due


def line_spans(data: Bytes) -> tuple[Ints, Ints]:
    """Beginning and end (without the line's terminator) of every line."""
    stops = np.flatnonzero(data == _NEWLINE)
    ends = stops
    returns = np.flatnonzero(data == _RETURN)
    if len(returns):
        before = np.zeros(len(data) + 1, dtype=bool)
        before[returns + 1] = True
        ends = stops - before[stops]
        following = data[np.minimum(returns + 1, len(data) - 1)]
        lone = returns[(following != _NEWLINE) | (returns == len(data) - 1)]
        if len(lone):
            order = np.argsort(np.concatenate([stops, lone]), kind="stable")
            ends = np.concatenate([ends, lone])[order]
            stops = np.concatenate([stops, lone])[order]
    starts = np.concatenate([np.zeros(1, dtype=np.int64), stops + 1])
    if starts[-1] >= len(data):
        return starts[:-1], ends.astype(np.int64)
    return starts, np.concatenate([ends, [len(data)]]).astype(np.int64)


def _real_rows(data: Bytes, starts: Ints, ends: Ints, rules: LineRules) -> npt.NDArray[np.bool_]:
    """True for lines that are neither blank nor a comment."""
    first = data[np.minimum(starts, len(data) - 1)]
    keep = ends > starts
    if (first[keep] <= 32).any():
        ink = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(_ink(data, rules.kind), dtype=np.int64)])
        keep &= ink[ends] > ink[starts]
    if rules.comment:
        keep &= first != ord(rules.comment)
    return keep


def _ink(data: Bytes, kind: str) -> npt.NDArray[np.bool_]:
    """Bytes that make a line non-blank: csv trims like Java's String.trim, json skips only JSON's white space."""
    if kind == "csv":
        return data > 32
    return ~np.isin(data, np.frombuffer(b" \t\r\n", dtype=np.uint8))


def count_line_ends(path: str, end_offset: int) -> int:
    """How many lines end before an offset, the beginning of a line."""
    if not end_offset:
        return 0
    found = list(blocks(path, LineRules("text"), end_offset=end_offset))
    return found[-1].end.line if found else 0


def is_decodable(path: str) -> bool:
    """Whether all bytes of a file without compression are UTF-8. A GB of ASCII takes some tenths of a second."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(BLOCK_BYTES):
            if chunk.isascii() and not decoder.getstate()[0]:
                continue
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                return False
    return not decoder.getstate()[0]


def row_texts(block: Block) -> tuple[Any, Ints]:
    """(bytes of the block's rows without terminators, Arrow offsets into them): ready for a string array."""
    lengths = block.ends - block.starts
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    newlines = block.data == _NEWLINE
    if len(block.data) - int(offsets[-1]) == int(np.count_nonzero(newlines)):
        return block.data[~newlines], offsets  # nothing but newlines lies between the rows
    inside = np.zeros(len(block.data) + 1, dtype=np.int8)
    # +1 where a row begins, -1 where it ends; both are unique, and an empty row cancels itself out.
    inside[block.starts] += 1
    inside[block.ends] -= 1
    return block.data[np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)], offsets
