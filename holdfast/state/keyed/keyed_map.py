"""One partition's keyed state as a *version*: a short list of immutable segments, the newest last; and how it goes on.

Invariants:
- A key's state is its row in the newest segment that has the key; older rows are ignored.
- Within a segment each key occurs once, and rows ascend by `__hf_hash`. Keys may share a hash.
- A version never changes. A step reads version n−1 and gives version n, under names of its own; it deletes nothing. Given
  the same version and rows the result is the same: a repeated task does no harm. What fails removes what it wrote.
- A step costs what its batch costs: merging is spread over steps by a budget (merge_plan.py), the base is rewritten only
  after as many rows have come as it has, and a look-up visits a bounded number of runs (lookup.py). No more rows are in
  memory than the step has and may merge, of wide rows fewer.
- Merges under way can be read off the list itself (layout.py); whoever does not know them still finds every key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from holdfast.durable import remove_quietly
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, joined_columns, single
from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, owned
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed import layout
from holdfast.state.keyed.layout import Block, Merge
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS, Bounds, Busy, Idle, plan
from holdfast.state.keyed.segment import OPENED, Place, Segment, Segments, segment_rows, write_segment


@dataclass(frozen=True, slots=True)
class Useful:
    """Which state rows are still of use. The others count as if they were not there, wherever they are found: merging
    leaves them out, where older segments have nothing of use for the key either. `in_base`: only merges with the oldest
    run may, behind which no older row of a key can appear."""

    rows: Callable[[pa.Table], Bools]
    in_base: bool = False


def advance(
    segments: Segments,
    changed: pa.Table,
    aggregation: Aggregation,
    place: Place,
    useful: Useful | None = None,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Segments:
    """The segments after a step. `changed`: the step's state rows, ascending by hash, each key once."""
    if not changed.num_rows:
        return segments
    rows, size = sum(s.rows for s in segments), sum(s.bytes for s in segments)
    bounds = bounds.fitting(rows + changed.num_rows, size + changed.nbytes)
    step = _Step(segments, SortedRows(changed), aggregation, place, useful, bounds)
    try:
        result = step.perform()
    except BaseException:
        for segment in step.written:
            remove_quietly(segment.path)
        raise
    OPENED.forget(set(segments).difference(result))
    OPENED.forget_vanished()
    return result


@dataclass(slots=True)
class _Step:
    """One step of one partition: from the old list to the new one."""

    segments: Segments
    changed: SortedRows
    aggregation: Aggregation
    place: Place
    useful: Useful | None
    bounds: Bounds
    written: list[Segment] = field(default_factory=list)
    number: int = 0
    """Of the next merge to begin."""

    def perform(self) -> Segments:
        self.number = layout.free_number(self.segments)
        blocks = layout.blocks_of(self.segments)
        shape = [self._shape(block) for block in blocks]
        parts = [block.segments for block in blocks]
        # Newest first: older indices stay valid.
        for work in plan(shape, len(self.changed), self.bounds, self._since_checkpoint(blocks)):
            parts[work.first : work.end] = [
                self._merged(blocks[work.first : work.end], work.rows, work.first == 0)
            ]
        # A run of its own until the next step: checkpoints store the rows that steps changed.
        parts.append(self._new_run())
        return tuple(segment for part in parts for segment in part)

    def _since_checkpoint(self, blocks: list[Block]) -> int:
        """The first of the newest blocks that have nothing but rows changed since the checkpoint that the step comes
        after."""
        age = layout.age_of(self.place.prefix)
        first = len(blocks)
        while age is not None and first and layout.age_of(blocks[first - 1].segments[-1].name) == age:
            first -= 1
        return first

    def _shape(self, block: Block) -> Idle | Busy:
        if not isinstance(block, Merge):
            return Idle(block.rows)
        progress = self._rows(block.pieces.segments[-1]).last
        inputs = [segment for run in block.inputs for segment in run.segments]
        return Busy(sum(s.rows - self._rows(s).upto(progress) for s in inputs), block.pieces.rows)

    def _merged(self, blocks: list[Block], rows: int, base: bool) -> Segments:
        """What stands in the place of blocks whose merge was taken on by `rows` rows: inputs that have more to give,
        pieces from before, new pieces. The blocks are one merge, or runs."""
        inputs, pieces, number, progress = self._state_of(blocks)
        sources = [self._rows(segment) for segment in inputs]
        tables = []
        for slices in ranges(sources, self.bounds.piece_rows, progress, rows):
            progress = slices.reached
            tables.append(self._of_use(last_wins(self.aggregation, slices.tables), base))
        assert progress is not None
        inputs = [s for s, source in zip(inputs, sources, strict=True) if source.last > progress]
        age = max(layout.age_of(segment.name) or 0 for block in blocks for segment in block.segments)
        prefixes = [layout.aged(f"{self.place.prefix}-{k}", age) for k in range(len(tables))]
        if not pieces:
            prefixes = [layout.first_name(prefix, len(sources)) for prefix in prefixes]
        new = [
            self._write(layout.piece_name(prefix, number, len(inputs)), table)
            for prefix, table in zip(prefixes, tables, strict=True)
        ]
        return (*inputs, *pieces, *new)

    def _of_use(self, table: pa.Table, base: bool) -> pa.Table:
        """The rows to keep, and always the last: a piece tells by it how far its merge has come."""
        if self.useful is None or (self.useful.in_base and not base):
            return table
        kept = self.useful.rows(table)
        kept[-1] = True
        return table if kept.all() else table.take(pa.array(np.flatnonzero(kept)))

    def _state_of(self, blocks: list[Block]) -> tuple[list[Segment], Segments, int, int | None]:
        """(inputs, pieces so far, number, hash reached) of the merge of these blocks, which may be about to begin."""
        if len(blocks) == 1 and isinstance(merge := blocks[0], Merge):
            pieces = merge.pieces.segments
            inputs = [segment for run in merge.inputs for segment in run.segments]
            return inputs, pieces, merge.number, self._rows(pieces[-1]).last
        self.number += 1
        return [segment for block in blocks for segment in block.segments], (), self.number - 1, None

    def _new_run(self) -> Segments:
        """The step's own rows, written."""
        if len(self.changed) <= self.bounds.piece_rows:
            return (self._write(layout.change_name(self.place.prefix), self.changed.table),)
        number, self.number = self.number, self.number + 1
        return tuple(
            self._write(
                layout.piece_name(layout.change_name(self.place.prefix, k), number, 0), slices.tables[0]
            )
            for k, slices in enumerate(ranges([self.changed], self.bounds.piece_rows))
        )

    def _rows(self, segment: Segment) -> SortedRows:
        return segment_rows(segment, self.aggregation)

    def _write(self, name: str, table: pa.Table) -> Segment:
        segment = write_segment(self.place.directory, name, table)
        self.written.append(segment)
        return segment


# --- merging --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slices:
    """One hash range of several tables, oldest first, and the highest hash in it. No row of it is elsewhere."""

    tables: list[pa.Table]
    reached: int


def ranges(
    sources: Sequence[SortedRows], rows: int, after: int | None = None, limit: int | None = None
) -> Iterator[Slices]:
    """The rows above the hash `after` in ascending ranges of at most `rows` rows, in all about `limit` (None: all).

    Equal hashes are never parted: a range may have more rows if they all share one hash."""
    starts = [source.upto(after) for source in sources]
    left = sum(len(source) for source in sources) - sum(starts)
    limit = left if limit is None else limit
    spare = limit // 10 if limit < left else 0
    while left and limit > spare:
        bound = _bound(sources, starts, after, min(rows, limit))
        ends = [source.upto(bound) for source in sources]
        taken = [(s, start, end) for s, start, end in zip(sources, starts, ends, strict=True) if start < end]
        after = max(int(source.hashes[end - 1]) for source, _, end in taken)
        yield Slices([source.table.slice(start, end - start) for source, start, end in taken], after)
        count = sum(ends) - sum(starts)
        starts, left, limit = ends, left - count, limit - count


def _bound(sources: Sequence[SortedRows], starts: list[int], after: int | None, rows: int) -> int:
    """A hash up to which there are at most `rows` rows behind `starts`, and almost as many where hashes allow it.

    Found by interpolation, since hashes are spread evenly, in turn with halving, in case they are not."""
    high = max(source.last for source in sources)
    above = sum(len(source) for source in sources) - sum(starts)
    if above <= rows:
        return high
    low = min(source.first for source in sources) - 1 if after is None else after
    below, done, halve = 0, sum(starts), False
    while high - low > 1:
        share = 0.5 if halve else (0.95 * rows - below) / (above - below)
        middle = min(max(low + int((high - low) * share), low + 1), high - 1)
        count = sum(source.upto(middle) for source in sources) - done
        if count > rows:
            high, above = middle, count
        else:
            low, below = middle, count
            if count >= 0.9 * rows:
                break
        halve = not halve
    return low if below else high


def last_wins(aggregation: Aggregation, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of state rows, oldest first, as one: for each key its newest row; ascending by hash."""
    columns = joined_columns(aggregation.state_schema, tables[::-1])
    grouping = group_rows(as_int64(columns[0]), columns[1 : 1 + len(aggregation.by)])
    newest = pa.array(grouping.first_rows)
    return pa.Table.from_arrays([column.take(newest) for column in columns], schema=aggregation.state_schema)


def dealt_out(
    versions: Sequence[Segments],
    partition: int,
    partitions: int,
    aggregation: Aggregation,
    place: Place,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Segments:
    """The version of `partition` when a state is restored with another number of partitions: one run.

    `versions`: of all old partitions (or those whose key groups overlap); each key occurs in one of them only."""
    segments = [segment for version in versions for segment in version]
    bounds = bounds.fitting(sum(s.rows for s in segments), sum(s.bytes for s in segments))
    pieces: list[Segment] = []
    for slices in ranges([segment_rows(segment, aggregation) for segment in segments], bounds.piece_rows):
        mine = [
            owned(as_int64(single(table.column(HASH_COLUMN))), partition, partitions)
            for table in slices.tables
        ]
        kept = [table.filter(pa.array(own)) for table, own in zip(slices.tables, mine, strict=True)]
        joined = last_wins(aggregation, kept)
        if joined.num_rows:
            pieces.append(place.write(joined, layout.piece_name(f"-{len(pieces)}", 0, 0)))
    return tuple(pieces)
