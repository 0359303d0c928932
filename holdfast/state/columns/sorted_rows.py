"""State rows ascending by hash, and where in them a hash lies.

Look-ups ask many runs for keys of which each is in one. Binary search is slow for that, so a segment that is searched
often gets an *index*. Hashes are spread evenly: the top bits of a hash, counted from the first, choose a bit in a map
where the bits of all hashes that are there are set. Where the bit is not set, the hash is not there, which settles most
of them. Where it is, the bits set before it say at which row the hash is, or a little before if some share a bit.
Bits are counted within words of 64; the row at which each word begins is kept. All in all two to four bytes per row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.hashing import I64, U64

_PAYS_OFF = 8
"""The index is made once the hashes sought reach this part of the rows: it has then cost as much as they."""
_BITS_PER_ROW = 3
"""As a logarithm: there are at least 2^3 bits per row, so that one hash in eight or less passes without being there."""
_ROWS_AT_ONCE = 1 << 16
_STEPS = 8
_ONE = np.uint64(1)


class SortedRows:
    """A table of state rows: the hash first, each key once, ascending by hash, at least one row. Nothing is copied.
    `batch` has the columns behind the hash.

    Several threads may search at once: at worst they make the same index twice."""

    __slots__ = ("_index", "_sought", "batch", "first", "hashes", "last", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        hashes, *others = (single(column) for column in table.columns)
        self.hashes: I64 = as_int64(hashes)
        self.batch = pa.record_batch(others, names=table.column_names[1:])
        self.first = int(self.hashes[0])
        self.last = int(self.hashes[-1])
        self._sought = 0
        self._index: _Index | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    def upto(self, hash_: int | None) -> int:
        """How many rows have at most this hash; None: none."""
        if hash_ is None or hash_ < self.first:
            return 0
        if hash_ >= self.last:
            return len(self.hashes)
        return int(self.hashes.searchsorted(np.int64(hash_), side="right"))

    def search(self, sought: I64) -> tuple[I64, I64]:
        """(which of the hashes sought are here, the first row of each). All lie in [first, last] and ascend."""
        if self._index is not None:
            return self._index.search(self.hashes, sought)
        self._sought += len(sought)
        rows = self.hashes.searchsorted(sought)
        here = np.flatnonzero(self.hashes[rows] == sought)
        return here, rows[here]

    def prepare(self, sought: int, rows_max: int) -> int:
        """Before `sought` hashes are searched: make the index if it pays off and there are at most `rows_max` rows.
        Returns how many rows were worked on."""
        rows = len(self.hashes)
        if self._index is not None or rows > rows_max or (self._sought + sought) * _PAYS_OFF < rows:
            return 0
        self._index = _Index(self.hashes)
        return rows


class _Index:
    """A bit for each small range of hashes, set if there is a row; and the first row of each word of bits."""

    __slots__ = ("_first", "_shift", "_starts", "_words")

    def __init__(self, hashes: I64) -> None:
        self._first = hashes[0].view(np.uint64)
        span = int(hashes[-1]) - int(hashes[0])
        self._shift = np.uint64(max(span.bit_length() - len(hashes).bit_length() - _BITS_PER_ROW, 0))
        words = (span >> int(self._shift)) // 64 + 1
        bits = np.zeros(words * 8, dtype=np.uint8)
        counts = np.zeros(words, dtype=np.int64)
        for start in range(0, len(hashes), _ROWS_AT_ONCE):
            places = self._places(hashes[start : start + _ROWS_AT_ONCE])
            _set_bits(bits, places)
            _count_words(counts, places)
        self._words: U64 = bits.view(np.uint64)
        self._starts: npt.NDArray[np.int64] = np.cumsum(counts) - counts

    def _places(self, hashes: I64) -> I64:
        # As unsigned numbers distances from the first hash fit, even where they would overflow as signed ones.
        return np.asarray((hashes.view(np.uint64) - self._first) >> self._shift).view(np.int64)

    def search(self, hashes: I64, sought: I64) -> tuple[I64, I64]:
        places = self._places(sought)
        words = self._words[places >> 6]
        bit = _ONE << (places & 63).view(np.uint64)
        maybe = np.flatnonzero((words & bit) != 0)
        if len(maybe) < len(sought):
            places, words, bit, sought = places[maybe], words[maybe], bit[maybe], sought[maybe]
        rows = self._starts[places >> 6] + np.bitwise_count(words & (bit - _ONE))
        there = hashes[rows]
        behind = np.flatnonzero(there < sought)
        for _ in range(_STEPS):
            if not len(behind):
                break
            rows[behind] += 1
            there[behind] = hashes[rows[behind]]
            behind = behind[there[behind] < sought[behind]]
        else:  # many rows share a bit
            rows[behind] = hashes.searchsorted(sought[behind])
            there[behind] = hashes[rows[behind]]
        equal = there == sought
        return maybe[equal], rows[equal]


def _set_bits(bits: npt.NDArray[np.uint8], places: I64) -> None:
    """Set the bits at ascending places."""
    byte = int(places[0]) >> 3
    flags = np.zeros(int(places[-1]) + 1 - 8 * byte, dtype=np.uint8)
    flags[places - 8 * byte] = 1
    packed = np.packbits(flags, bitorder="little")
    bits[byte : byte + len(packed)] |= packed


def _count_words(counts: I64, places: I64) -> None:
    """Count the rows at ascending places by the word they are in."""
    word = int(places[0]) >> 6
    here = np.bincount((places >> 6) - word)
    counts[word : word + len(here)] += here
