"""The index of an operator's stored variables: which version of each lies where. See docs/formats/incremental.md.

    index := version u8 | count | entry × count
    entry := size << 1 | 0                              a base
           | size << 1 | 1 | distance | row             a delta: `distance` epochs back, in that index's `row`, is the version before

All numbers but the first are unsigned LEB128. Entries stand in the order of the variables, as their bytes do in the `incr`
pair, so an offset is the sum of the sizes before it. A delta of size 0 means: unchanged since the version before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.checkpoint.adaptive import Form
from holdfast.checkpoint.blobs import unusable
from holdfast.errors import DamagedError
from holdfast.ids import Epoch

VERSION = 1


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
    """The index of `epoch`. Entries lie one behind the other."""
    rows = list(entries)
    numbers = [len(rows)]
    end = 0
    for entry in rows:
        assert entry.offset == end
        end += entry.size
        numbers.append(entry.size << 1 | (entry.previous is not None))
        if entry.previous is not None:
            assert entry.previous.epoch < epoch
            numbers += [epoch - entry.previous.epoch, entry.previous.row]
    return bytes([VERSION]) + b"".join(map(_packed, numbers))


def decode(data: bytes, epoch: Epoch, where: str) -> list[Entry]:
    """The entries of an index; `where` names it in errors."""
    if not data or data[0] != VERSION:
        raise _damaged(where, "it has another version")
    numbers = _numbers(data, where)
    walk = iter(numbers)
    try:
        entries = []
        offset = 0
        for _ in range(next(walk)):
            size, is_delta = divmod(next(walk), 2)
            previous = Place(Epoch(epoch - next(walk)), next(walk)) if is_delta else None
            entries.append(Entry(offset, size, previous))
            offset += size
    except StopIteration:
        raise _damaged(where, "it ends too early") from None
    if next(walk, None) is not None:
        raise _damaged(where, "something follows its last entry")
    if any(entry.previous is not None and not 0 < entry.previous.epoch < epoch for entry in entries):
        raise _damaged(where, "it refers to an epoch that cannot be")
    return entries


def _packed(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(data: bytes, where: str) -> Sequence[int]:
    found, number, shift = [], 0, 0
    for byte in data[1:]:
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
