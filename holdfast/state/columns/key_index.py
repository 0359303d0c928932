"""Where in a table each key is: built once, asked for many keys at a time.

Rows lie ascending by the hash of their key. A hash is not a key: whoever is found by it is compared, and where several keys
share a hash the next rows are tried.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.state.columns.grouping import rows_equal
from holdfast.state.columns.hashing import I64, canonical_key, key_hash


class KeyIndex:
    """The rows of a table by their key. Each key is there once, and none is null. Never changes."""

    __slots__ = ("_hashes", "_keys", "_rows")

    def __init__(self, keys: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        canonical = [canonical_key(key) for key in keys]
        hashes = key_hash(canonical)
        self._rows: I64 = np.argsort(hashes, kind="stable")
        self._hashes: I64 = hashes[self._rows]
        self._keys = [key.take(pa.array(self._rows)) for key in canonical]

    def find(self, keys: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
        """The row of each key; null where there is none."""
        wanted = [canonical_key(key) for key in keys]
        hashes = key_hash(wanted)
        asked, rows = own_rows(self._hashes, self._keys, hashes, wanted, self._hashes.searchsorted(hashes))
        found = np.full(len(hashes), -1, dtype=np.int64)
        found[asked] = self._rows[rows]
        return pa.array(found, mask=found < 0)


def own_rows(
    stored_hashes: I64,
    stored: Sequence[pa.Array],
    hashes: I64,
    wanted: Sequence[pa.Array],
    rows: I64,
) -> tuple[I64, I64]:
    """(which of the keys wanted are stored, the row of each). `rows`: for each the first stored row whose hash is not
    smaller; stored rows ascend by hash."""
    asked: I64 = np.arange(len(rows))
    settled: list[tuple[I64, I64]] = [(asked[:0], rows[:0])]
    while True:
        inside = rows < len(stored_hashes)
        inside[inside] = stored_hashes[rows[inside]] == hashes[asked[inside]]
        asked, rows = asked[inside], rows[inside]
        if not len(asked):
            break
        # Keys that share a hash lie side by side: try the first, then for those still open the next, …
        same = rows_equal(stored, rows, wanted, asked)
        settled.append((asked[same], rows[same]))
        asked, rows = asked[~same], rows[~same] + 1
    return np.concatenate([found for found, _ in settled]), np.concatenate([row for _, row in settled])
