"""What a join remembers of each side: lists of segments, one per *kind* of row, the oldest first.

Invariants:
- The kind is part of a segment's name, so that the segments of an operator can be told apart after a restore.
- Within a segment rows ascend by (hash, coordinate); rows of older segments came before those of newer ones. Only
  neighbours are merged, so that this stays true.
- Small segments are merged with their successors once these have as many rows; large ones never. A segment that
  nobody needs any more goes as a whole, one of which little is needed is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates import as_int64, single
from holdfast.state.grouping import Bools
from holdfast.state.hashing import HASH_COLUMN, I64, key_group, partition_of_group
from holdfast.state.opened import OPENED
from holdfast.state.pairs import AT, SideRows, sorted_side
from holdfast.state.segment import Segment, write_segment

Segments = tuple[Segment, ...]
Needed = Callable[[SideRows], Bools | None]
"""Which rows may still be needed; None: all of them."""

MERGED_ROWS = 1 << 18


@dataclass(frozen=True)
class Kind:
    """One kind of row that a join keeps: a number for the names of its segments, key columns, columns."""

    number: int
    by: tuple[str, ...]
    columns: pa.Schema
    group_rows: int = MERGED_ROWS
    """Small segments are merged up to this size."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(HASH_COLUMN, pa.int64()), pa.field(AT, pa.int64()), *self.columns])

    def among(self, segments: Sequence[Segment]) -> Segments:
        """Those of an operator's segments that are of this kind."""
        return tuple(segment for segment in segments if segment.name.endswith(self._suffix))

    def rows(self, segment: Segment) -> SideRows:
        return OPENED.get_as(segment, self.schema, partial(SideRows, by=self.by))

    def empty(self) -> SideRows:
        return SideRows(self.schema.empty_table(), self.by)

    def fresh(self, rows: pa.Table, at: I64) -> SideRows:
        """Rows with hashes and their coordinates, as they will be kept."""
        columns = [rows.column(HASH_COLUMN), pa.chunked_array([pa.array(at)])]
        columns += [rows.column(name) for name in self.columns.names]
        return sorted_side(pa.Table.from_arrays(columns, schema=self.schema), self.by)

    def advance(
        self, segments: Segments, fresh: SideRows, needed: Needed, directory: Path, prefix: str
    ) -> Segments:
        """The segments of this kind after a step that brought `fresh`."""
        mask = needed(fresh)
        tail = [fresh.table if mask is None else fresh.table.filter(pa.array(mask))]
        rows = tail[0].num_rows
        kept: list[Segment] = []
        merging = True
        for segment in reversed(segments):
            old = self.rows(segment)
            mask = needed(old)
            count = len(old) if mask is None else int(np.count_nonzero(mask))
            merging = merging and count <= 2 * rows and rows + count <= self.group_rows
            if not count:
                continue
            if merging:
                tail.insert(0, old.table if mask is None else old.table.filter(pa.array(mask)))
                rows += count
            elif mask is not None and 2 * count < len(old):
                alive = old.table.filter(pa.array(mask))
                kept.insert(0, write_segment(directory, f"{prefix}-again{len(kept)}{self._suffix}", alive))
            else:
                kept.insert(0, segment)
        if rows:
            merged = tail[0] if len(tail) == 1 else sorted_side(pa.concat_tables(tail), self.by).table
            kept.append(write_segment(directory, f"{prefix}{self._suffix}", merged))
        OPENED.forget(set(segments).difference(kept))
        return tuple(kept)

    def repartitioned(
        self, old: Sequence[Segments], partition: int, partitions: int, directory: Path, prefix: str
    ) -> Segments:
        """The rows of one partition when the state is dealt out over another number of them. Keys are in one old
        partition each, so the order within a key is kept."""
        pieces = []
        for segment in [segment for segments in old for segment in self.among(segments)]:
            table = self.rows(segment).table
            hashes = as_int64(single(table.column(HASH_COLUMN)))
            mine = partition_of_group(key_group(hashes), partitions) == partition
            pieces.append(table.filter(pa.array(mine)))
        joined = pa.concat_tables([self.schema.empty_table(), *pieces])
        if not joined.num_rows:
            return ()
        return (write_segment(directory, f"{prefix}{self._suffix}", sorted_side(joined, self.by).table),)

    @property
    def _suffix(self) -> str:
        return f"-k{self.number}"


def repartitioned(
    kinds: Sequence[Kind],
    old: Sequence[Segments],
    partition: int,
    partitions: int,
    directory: Path,
    prefix: str,
) -> Segments:
    """The segments of one partition, of all kinds."""
    dealt = [kind.repartitioned(old, partition, partitions, directory, prefix) for kind in kinds]
    return tuple(segment for of_kind in dealt for segment in of_kind)
