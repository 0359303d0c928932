"""The state of given keys, found in the segments of a version.

Keys are sought in ascending order of their hashes, from the newest block to the oldest, each only until it is found. So
a run of pieces costs one pass over the keys, whatever their number: each piece is asked for the keys of its own range.
Pages of a large segment are touched only for rows whose hash is the one sought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.accumulator import Accumulator
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, single
from holdfast.state.aggregates.whole_number_paths import paired_states
from holdfast.state.columns.grouping import Bools, Runs, keys_equal
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.columns.key_index import own_rows
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed.layout import Merge, Run, blocks_of
from holdfast.state.keyed.segment import Segment, segment_rows

ROWS_INDEXED_MIN = 1 << 20
"""Rows for which one look-up may always make indexes, a large one for more. The rest is left to the next."""


@dataclass(frozen=True)
class Found:
    """What was found for a table of keys."""

    aggregation: Aggregation
    keys: pa.Table
    rows: I64
    """The rows of `keys` that have a state, in no particular order; each once."""
    values: list[pa.Array]
    """The kept parts of their states, in the same order."""

    def as_table(self) -> pa.Table:
        """State rows: hash and key as they were asked for, since they are equal, and the stored values."""
        rows = pa.array(self.rows)
        names = (HASH_COLUMN, *self.aggregation.by)
        keys = [single(self.keys.column(name)).take(rows) for name in names]
        return pa.Table.from_arrays([*keys, *self.values], schema=self.aggregation.state_schema)

    def combined(self) -> pa.Table:
        """The keys' rows, which are state rows, each combined with what was found: `combine` without the need to
        bring together again what belongs together."""
        if not len(self.rows):
            return self.keys
        by = 1 + len(self.aggregation.by)
        columns = [single(column) for column in self.keys.columns]
        folded: list[pa.Array] = []
        for acc, part in zip(self.aggregation.accumulators, self.aggregation.parts, strict=True):
            own, found = columns[by:][part], self.values[part]
            paired = paired_states(acc, own, self.rows, found)
            folded += self._folded(acc, own, found) if paired is None else paired
        return pa.Table.from_arrays([*columns[:by], *folded], schema=self.aggregation.state_schema)

    def _folded(self, acc: Accumulator, own: list[pa.Array], found: list[pa.Array]) -> list[pa.Array]:
        order, runs = self._pairs
        stacked = [pa.concat_arrays(pair) for pair in zip(found, own, strict=True)]
        return acc.fold([column.take(order) for column in stacked], runs)

    @cached_property
    def _pairs(self) -> tuple[pa.Array, Runs]:
        """How to order what was found, with the keys' rows below it, so that each key is one run, state first."""
        found, keys = len(self.rows), self.keys.num_rows
        known = np.zeros(keys, dtype=np.int64)
        known[self.rows] = 1
        ends = np.arange(1, keys + 1) + np.cumsum(known)
        order = np.empty(found + keys, dtype=np.int64)
        order[ends[self.rows] - 2] = np.arange(found)
        order[ends - 1] = np.arange(found, found + keys)
        return pa.array(order), Runs(ends - 1 - known, found + keys)


def find_rows(segments: Sequence[Segment], keys: pa.Table, aggregation: Aggregation) -> Found:
    """The state of those keys that have one. `keys`: `__hf_hash` and the key columns in canonical form (as `partial` and
    `lift` give them), each key once."""
    search = _Search(keys, aggregation)
    for block in reversed(blocks_of(segments)):
        if search.done:
            break
        if isinstance(block, Merge):
            search.visit(block.pieces)
            progress = segment_rows(block.pieces.segments[-1], aggregation).last
            for run in reversed(block.inputs):
                search.visit(run, above=progress)
        else:
            search.visit(block)
    return search.found()


class _Hits(NamedTuple):
    """Keys sought, as places among them, that may be in a piece: at these rows, or behind if several share a hash."""

    piece: SortedRows
    places: I64
    rows: I64

    def taken(self) -> list[pa.Array]:
        """The rows, without the hash."""
        columns: list[pa.Array] = self.piece.batch.take(pa.array(self.rows)).columns
        return columns


class _Search:
    """Keys sought, ascending by hash, and what was found.

    `_sought` are rows of the key table. Places are indices into it. Keys that were found are out of `_open`, and at
    times taken out of `_sought` as well."""

    def __init__(self, keys: pa.Table, aggregation: Aggregation) -> None:
        self._keys = keys
        self._aggregation = aggregation
        self._by = len(aggregation.by)
        self._wanted = [single(keys.column(name)) for name in aggregation.by]
        self._rows_to_index = max(ROWS_INDEXED_MIN, 8 * keys.num_rows)
        self._found: list[I64] = [np.zeros(0, dtype=np.int64)]
        empty = aggregation.state_schema.empty_table().columns[1 + self._by :]
        self._values: list[list[pa.Array]] = [[single(column)] for column in empty]
        hashes = as_int64(single(keys.column(HASH_COLUMN)))
        self._sought: I64 = np.arange(len(hashes))
        if (hashes[1:] < hashes[:-1]).any():
            self._sought = np.argsort(hashes)
            hashes = hashes[self._sought]
        self._hashes = hashes
        self._open: Bools = np.ones(len(hashes), dtype=np.bool_)
        self._left = len(hashes)

    @property
    def done(self) -> bool:
        return not self._left

    def found(self) -> Found:
        values = [pa.concat_arrays(column) for column in self._values]
        return Found(self._aggregation, self._keys, np.concatenate(self._found), values)

    def visit(self, run: Run, above: int | None = None) -> None:
        """Seek in a run the keys not found yet, only those with a hash above the given one."""
        if 4 * self._left < 3 * len(self._sought):
            self._sought, self._hashes = self._sought[self._open], self._hashes[self._open]
            self._open = np.ones(self._left, dtype=np.bool_)
        hits = [hit for hit in self._search(run, above) if len(hit.places)]
        if not hits:
            return
        taken = [hit.taken() for hit in hits]
        if not self._same_keys(hits, taken):
            hits = [self._among_collisions(hit) for hit in hits]
            taken = [hit.taken() for hit in hits]
        for hit, columns in zip(hits, taken, strict=True):
            self._note(hit.places, columns[self._by :])

    def _search(self, run: Run, above: int | None) -> list[_Hits]:
        pieces = [segment_rows(segment, self._aggregation) for segment in run.segments]
        least = [piece.first if above is None else max(piece.first, above + 1) for piece in pieces]
        starts = self._hashes.searchsorted(np.array(least, dtype=np.int64)).tolist()
        most = np.array([piece.last for piece in pieces], dtype=np.int64)
        ends = self._hashes.searchsorted(most, side="right").tolist()
        return [
            self._search_piece(piece, start, end)
            for piece, start, end in zip(pieces, starts, ends, strict=True)
            if start < end
        ]

    def _search_piece(self, piece: SortedRows, start: int, end: int) -> _Hits:
        self._rows_to_index -= piece.prepare(end - start, self._rows_to_index)
        places, rows = piece.search(self._hashes[start:end])
        places += start
        open_ = self._open[places]
        return _Hits(piece, places, rows) if open_.all() else _Hits(piece, places[open_], rows[open_])

    def _same_keys(self, hits: Sequence[_Hits], taken: Sequence[list[pa.Array]]) -> bool:
        """Whether all rows have the very key sought and not only its hash."""
        sought = pa.array(self._sought[np.concatenate([hit.places for hit in hits])])
        stored = [pa.concat_arrays([columns[i] for columns in taken]) for i in range(self._by)]
        return bool(keys_equal(stored, [wanted.take(sought) for wanted in self._wanted]).all())

    def _among_collisions(self, hit: _Hits) -> _Hits:
        """The same with each key's own row, and without the keys that are not there."""
        piece, places, rows = hit
        sought = pa.array(self._sought[places])
        wanted = [key.take(sought) for key in self._wanted]
        asked, own = own_rows(
            piece.hashes, piece.batch.columns[: self._by], self._hashes[places], wanted, rows
        )
        return _Hits(piece, places[asked], own)

    def _note(self, places: I64, values: Sequence[pa.Array]) -> None:
        self._found.append(self._sought[places])
        self._open[places] = False
        self._left -= len(places)
        for column, new in zip(self._values, values, strict=True):
            column.append(new)
