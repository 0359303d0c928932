"""A step's new rows join the version, and merges move on: what merge_plan.py decided is done here.

What must hold: the new list of segments gives every key the row that the old list with the new rows behind it gives
(layout.py says why pieces do). No more rows are in memory than the step has and may merge, of wide rows fewer.
If anything fails, the files written so far are removed. Given the same version and rows the result is the same: a repeated
task does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.durable import remove_quietly
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, joined_columns
from holdfast.state.columns.grouping import Bools, group_rows
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed.layout import (
    Block,
    Merge,
    age_of,
    aged,
    blocks_of,
    change_name,
    first_name,
    free_number,
    piece_name,
)
from holdfast.state.keyed.merge_plan import Bounds, Busy, Idle, plan
from holdfast.state.keyed.segment import OPENED, Segment, opened, write_segment

Keep = Callable[[pa.Table], Bools]
"""Which state rows are still of use. The others count as if they were not there, wherever they are found."""


def advance(
    segments: tuple[Segment, ...],
    changed: pa.Table,
    aggregation: Aggregation,
    directory: Path,
    prefix: str,
    bounds: Bounds,
    keep: Keep | None = None,
    keep_in_base: Keep | None = None,
) -> tuple[Segment, ...]:
    """The segments after a step. `changed`: the step's state rows, ascending by hash, each key once, at least one.
    `keep`: merging leaves out what it does not keep, where older segments have nothing of use for the key either.
    `keep_in_base`: the same for merges with the oldest run, behind which no older row of a key can appear."""
    rows, size = sum(s.rows for s in segments), sum(s.bytes for s in segments)
    bounds = bounds.fitting(rows + changed.num_rows, size + changed.nbytes)
    step = _Step(segments, SortedRows(changed), aggregation, directory, prefix, bounds, keep, keep_in_base)
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

    segments: tuple[Segment, ...]
    changed: SortedRows
    aggregation: Aggregation
    directory: Path
    prefix: str
    bounds: Bounds
    keep: Keep | None = None
    keep_in_base: Keep | None = None
    written: list[Segment] = field(default_factory=list)
    number: int = 0
    """Of the next merge to begin."""

    def perform(self) -> tuple[Segment, ...]:
        self.number = free_number(self.segments)
        blocks = blocks_of(self.segments)
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
        age = age_of(self.prefix)
        first = len(blocks)
        while age is not None and first and age_of(blocks[first - 1].segments[-1].name) == age:
            first -= 1
        return first

    def _shape(self, block: Block) -> Idle | Busy:
        if not isinstance(block, Merge):
            return Idle(block.rows)
        progress = self._rows(block.pieces.segments[-1]).last
        inputs = [segment for run in block.inputs for segment in run.segments]
        return Busy(sum(s.rows - self._rows(s).upto(progress) for s in inputs), block.pieces.rows)

    def _merged(self, blocks: list[Block], rows: int, base: bool) -> tuple[Segment, ...]:
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
        age = max(age_of(segment.name) or 0 for block in blocks for segment in block.segments)
        prefixes = [aged(f"{self.prefix}-{k}", age) for k in range(len(tables))]
        if not pieces:
            prefixes = [first_name(prefix, len(sources)) for prefix in prefixes]
        new = [
            self._write(piece_name(prefix, number, len(inputs)), table)
            for prefix, table in zip(prefixes, tables, strict=True)
        ]
        return (*inputs, *pieces, *new)

    def _of_use(self, table: pa.Table, base: bool) -> pa.Table:
        """The rows to keep, and always the last: a piece tells by it how far its merge has come."""
        keep = self.keep_in_base if base and self.keep_in_base is not None else self.keep
        if keep is None:
            return table
        kept = keep(table)
        kept[-1] = True
        return table if kept.all() else table.take(pa.array(np.flatnonzero(kept)))

    def _state_of(self, blocks: list[Block]) -> tuple[list[Segment], tuple[Segment, ...], int, int | None]:
        """(inputs, pieces so far, number, hash reached) of the merge of these blocks, which may be about to begin."""
        if len(blocks) == 1 and isinstance(merge := blocks[0], Merge):
            pieces = merge.pieces.segments
            inputs = [segment for run in merge.inputs for segment in run.segments]
            return inputs, pieces, merge.number, self._rows(pieces[-1]).last
        self.number += 1
        return [segment for block in blocks for segment in block.segments], (), self.number - 1, None

    def _new_run(self) -> tuple[Segment, ...]:
        """The step's own rows, written."""
        if len(self.changed) <= self.bounds.piece_rows:
            return (self._write(change_name(self.prefix), self.changed.table),)
        number, self.number = self.number, self.number + 1
        return tuple(
            self._write(piece_name(change_name(self.prefix, k), number, 0), slices.tables[0])
            for k, slices in enumerate(ranges([self.changed], self.bounds.piece_rows))
        )

    def _rows(self, segment: Segment) -> SortedRows:
        return opened(segment, self.aggregation)

    def _write(self, name: str, table: pa.Table) -> Segment:
        segment = write_segment(self.directory, name, table)
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

    Equal hashes are never parted: a range may have more rows if they all share one hash.
    """
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

    Found by interpolation, since hashes are spread evenly, in turn with halving, in case they are not.
    """
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
