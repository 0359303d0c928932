"""The index of an operator's stored variables: which version of each lies where. See docs/formats/incremental.md.

    index := 1 u8 | count | entry × count
           | 2 u8 | deflated(count | size << 1 | is delta, × count | distance × deltas | step × deltas)
    entry := size << 1 | 0                              a base
           | size << 1 | 1 | distance | row             a delta: `distance` epochs back, in that index's `row`, is the version before

The first writes entry by entry, the second field by field and compressed; a `step` is how much further than the row of the
delta before (at first: than -1) the row lies, as 2 n or, backwards, 2 n - 1. The shorter one is stored (decision 16).

All numbers but the first are unsigned LEB128. Entries stand in the order of the variables, as their bytes do in the `incr`
pair, so an offset is the sum of the sizes before it. A delta of size 0 means: unchanged since the version before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from holdfast.checkpoint.adaptive import Form
from holdfast.checkpoint.blobs import unusable
from holdfast.errors import DamagedError
from holdfast.ids import Epoch

BY_ENTRY, BY_FIELD = 1, 2
"""Versions of the encoding."""
_BYTES_MAX = 64 << 20
"""Of an index, inflated: more than any operator's variables need."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a version is described: an epoch, and the row in its index."""

    epoch: Epoch
    row: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One variable in one epoch."""

    offset: int
    size: int
    previous: Place | None = None
    """The version before; None: this is a base."""

    @property
    def form(self) -> Form:
        return "base" if self.previous is None else "delta"


def encode(entries: Iterable[Entry], epoch: Epoch) -> bytes:
    """The index of `epoch`, in the shorter encoding. Entries lie one behind the other."""
    rows = list(entries)
    end = 0
    for entry in rows:
        assert entry.offset == end
        assert entry.previous is None or entry.previous.epoch < epoch
        end += entry.size
    return min(_by_entry(rows, epoch), _by_field(rows, epoch), key=len)


def _by_entry(rows: Sequence[Entry], epoch: Epoch) -> bytes:
    numbers = [len(rows)]
    for entry in rows:
        numbers.append(entry.size << 1 | (entry.previous is not None))
        if entry.previous is not None:
            numbers += [epoch - entry.previous.epoch, entry.previous.row]
    return bytes([BY_ENTRY]) + b"".join(map(_packed, numbers))


def _by_field(rows: Sequence[Entry], epoch: Epoch) -> bytes:
    before = [entry.previous for entry in rows if entry.previous is not None]
    sizes = [entry.size << 1 | (entry.previous is not None) for entry in rows]
    places = [-1, *(place.row for place in before)]
    steps = [_folded(after - row) for row, after in pairwise(places)]
    numbers = [len(rows), *sizes, *(epoch - place.epoch for place in before), *steps]
    return bytes([BY_FIELD]) + zlib.compress(b"".join(map(_packed, numbers)), 9)


def decode(data: bytes, epoch: Epoch, where: str) -> list[Entry]:
    """The entries of an index; `where` names it in errors."""
    if not data or data[0] not in (BY_ENTRY, BY_FIELD):
        raise _damaged(where, "it has another version")
    is_by_field = data[0] == BY_FIELD
    walk = iter(_numbers(_inflated(data[1:], where) if is_by_field else data[1:], where))
    try:
        entries = list((_read_fields if is_by_field else _read_entries)(walk, epoch))
    except (StopIteration, RuntimeError):
        raise _damaged(where, "it ends too early") from None
    if next(walk, None) is not None:
        raise _damaged(where, "something follows its last entry")
    if any(entry.previous is not None and entry.previous.row < 0 for entry in entries):
        raise _damaged(where, "it refers to a row that cannot be")
    if any(entry.previous is not None and not 0 < entry.previous.epoch < epoch for entry in entries):
        raise _damaged(where, "it refers to an epoch that cannot be")
    return entries


def _read_entries(walk: Iterator[int], epoch: Epoch) -> Iterator[Entry]:
    offset = 0
    for _ in range(next(walk)):
        size, is_delta = divmod(next(walk), 2)
        previous = Place(Epoch(epoch - next(walk)), next(walk)) if is_delta else None
        yield Entry(offset, size, previous)
        offset += size


def _read_fields(walk: Iterator[int], epoch: Epoch) -> Iterator[Entry]:
    sizes = [divmod(next(walk), 2) for _ in range(next(walk))]
    deltas = sum(is_delta for _, is_delta in sizes)
    epochs = [Epoch(epoch - next(walk)) for _ in range(deltas)]
    rows = accumulate((_unfolded(next(walk)) for _ in range(deltas)), initial=-1)
    before = iter([Place(*each) for each in zip(epochs, list(rows)[1:], strict=True)])
    offset = 0
    for size, is_delta in sizes:
        yield Entry(offset, size, next(before) if is_delta else None)
        offset += size


def _inflated(data: bytes, where: str) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, _BYTES_MAX)
    except zlib.error:
        raise _damaged(where, "it cannot be inflated") from None
    if not inflater.eof or inflater.unused_data:
        raise _damaged(where, "it is cut off, too long, or something follows it")
    return found


def _folded(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _unfolded(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _packed(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(data: bytes, where: str) -> Sequence[int]:
    found, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(number)
            number = shift = 0
    if shift:
        raise _damaged(where, "its last number is cut off")
    return found


def _damaged(where: str, why: str) -> DamagedError:
    return unusable(f"{where} is no index of variables: {why}.")
