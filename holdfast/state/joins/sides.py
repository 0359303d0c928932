"""What a join remembers of each side: *piles* of segments, one for each sort of row, the oldest first.

Invariants:
- The number of the pile is part of a segment's name, so that the segments of an operator can be told apart after a restore.
- Within a segment rows ascend by (hash, coordinate); rows of older segments came before those of newer ones. Only
  neighbours are merged, so that this stays true.
- Small segments are merged with their neighbours, large ones never (`regrouped`). A segment that nobody needs any more
  goes as a whole, one of which little is needed is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import HASH_COLUMN, I64, owned
from holdfast.state.joins.pairs import AT, SideRows, sorted_side
from holdfast.state.keyed.segment import OPENED, Place, Segment, Segments

Needed = Callable[[SideRows], Bools | None]
"""Which rows may still be needed; None: all of them."""

MERGED_ROWS = 1 << 18


@dataclass(frozen=True)
class Group:
    """Neighbours, by their places in a list of segments, that become one segment; one that `stays` is not written."""

    first: int
    last: int
    stays: bool


def regrouped(left: Sequence[int], had: Sequence[int], group_rows: int) -> list[Group]:
    """How segments go on that have `left` of the rows they `had`, the oldest first; the last is new and not written yet.

    Written are new rows, and what is left of segments that lost more than half. A neighbour that could stay joins what is
    written if it has at most twice as many rows and both fit into `group_rows` (or into what a step brings, if that is
    more: it is one group anyway). So there are few groups, a row is rarely written again, and the rows of rare keys that
    outlive the others of their group do not remain a group of their own."""
    groups: list[Group] = []
    newest = len(left) - 1
    limit = max(group_rows, left[newest])
    rows = 0  # of the group in hand
    for place in range(newest, -1, -1):
        if not left[place]:
            continue
        stays = place != newest and 2 * left[place] >= had[place]
        joins = bool(groups) and rows + left[place] <= limit
        if joins and groups[0].stays:
            joins = not stays and rows <= 2 * left[place]
        elif joins and stays:
            joins = left[place] <= 2 * rows
        if joins:
            groups[0] = Group(place, groups[0].last, stays=False)
            rows += left[place]
        else:
            groups.insert(0, Group(place, place, stays))
            rows = left[place]
    return groups


@dataclass(frozen=True)
class Pile:
    """One sort of row that a join keeps: a number for the names of its segments, key columns, columns."""

    number: int
    by: tuple[str, ...]
    columns: pa.Schema
    group_rows: int = MERGED_ROWS
    """Small segments are merged up to this size."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(HASH_COLUMN, pa.int64()), pa.field(AT, pa.int64()), *self.columns])

    def among(self, segments: Sequence[Segment]) -> Segments:
        """Those of an operator's segments that lie here."""
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

    def advance(self, segments: Segments, fresh: SideRows, needed: Needed, place: Place) -> Segments:
        """The segments after a step that brought `fresh`."""
        opened = [*(self.rows(segment) for segment in segments), fresh]
        masks = [needed(rows) for rows in opened]
        left = [
            len(rows) if mask is None else int(np.count_nonzero(mask))
            for rows, mask in zip(opened, masks, strict=True)
        ]
        kept: list[Segment] = []
        for group in regrouped(left, [len(rows) for rows in opened], self.group_rows):
            if group.stays:
                kept.append(segments[group.first])
                continue
            pieces = [
                rows.table if mask is None else rows.table.filter(pa.array(mask))
                for rows, mask in list(zip(opened, masks, strict=True))[group.first : group.last + 1]
            ]
            merged = pieces[0] if len(pieces) == 1 else sorted_side(pa.concat_tables(pieces), self.by).table
            again = "" if group.last == len(segments) else f"-again{len(kept)}"
            kept.append(place.write(merged, again + self._suffix))
        OPENED.forget(set(segments).difference(kept))
        return tuple(kept)

    def only(self, segments: Segments, needed: Needed, place: Place) -> Segments:
        """The segments with nothing but needed rows; one that has no others stays as it is."""
        kept: list[Segment] = []
        for segment in segments:
            rows = self.rows(segment)
            mask = needed(rows)
            if mask is None:
                kept.append(segment)
            elif mask.any():
                alive = rows.table.filter(pa.array(mask))
                kept.append(place.write(alive, f"-{len(kept)}{self._suffix}"))
        OPENED.forget(set(segments).difference(kept))
        return tuple(kept)

    def repartitioned(
        self, old: Sequence[Segments], partition: int, partitions: int, place: Place
    ) -> Segments:
        """The rows of one partition when the state is dealt out over another number of them. Keys are in one old
        partition each, so the order within a key is kept."""
        pieces = []
        for segment in [segment for segments in old for segment in self.among(segments)]:
            table = self.rows(segment).table
            hashes = as_int64(single(table.column(HASH_COLUMN)))
            pieces.append(table.filter(pa.array(owned(hashes, partition, partitions))))
        joined = pa.concat_tables([self.schema.empty_table(), *pieces])
        if not joined.num_rows:
            return ()
        return (place.write(sorted_side(joined, self.by).table, self._suffix),)

    @property
    def _suffix(self) -> str:
        return f"-k{self.number}"


def number_of(name: str) -> int | None:
    """The number of the pile a segment belongs to, by its name."""
    _, dash, number = name.rpartition("-k")
    return int(number) if dash and number.isdigit() else None
