"""How many rows the segments of one partition hold, if a row that stands in several of them counts once.

Exact up to `SAMPLED` rows in all segments together, and where there is but one run. Of more rows, those in some narrow
ranges of hashes are counted, spread over all of them: hashes are spread evenly, so the share of repeated rows is the same
elsewhere. About 8,000 rows give it to within one or two in a hundred, whatever the size of the state; the largest run and
the sum of all rows are bounds that always hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.arrays import within
from holdfast.state.columns.hashing import I64
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed.layout import Merge, Run, blocks_of
from holdfast.state.keyed.segment import OPENED, Segment, segment_rows

SAMPLED = 1 << 13
RANGES = 64


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The rows of a segment from `first` on: those before it count no more."""

    rows: SortedRows
    first: int

    def __len__(self) -> int:
        return len(self.rows) - self.first

    def hashes_in(self, edges: I64) -> I64:
        """Those in ranges of hashes, without the last of each. `edges`: begin and end of each range, ascending."""
        places = np.maximum(self.rows.hashes.searchsorted(edges), self.first)
        counts = places[1::2] - places[::2]
        return self.rows.hashes[np.repeat(places[::2], counts) + within(counts)]


def rows_held(segments: Sequence[Segment], aggregation: Aggregation) -> int:
    """About how many different rows there are; see above."""
    OPENED.forget_vanished()
    most = sum(segment.rows for segment in segments)
    if len(segments) < 2:
        return most
    runs = [run for run in _runs(segments, aggregation) if run]
    stretches = [stretch for run in runs for stretch in run]
    whole = sum(map(len, stretches))
    if len(runs) == 1:
        return whole
    if whole <= SAMPLED:
        return len(np.unique(np.concatenate([s.rows.hashes[s.first :] for s in stretches])))
    edges = _edges(stretches, whole)
    seen = np.concatenate([stretch.hashes_in(edges) for stretch in stretches])
    if not len(seen):
        return whole
    about = round(whole * len(np.unique(seen)) / len(seen))
    return max(about, max(sum(map(len, run)) for run in runs))


def _runs(segments: Sequence[Segment], aggregation: Aggregation) -> Iterator[list[_Stretch]]:
    """What still counts of each run: of one that is being merged what the merge has not reached."""
    for block in blocks_of(segments):
        if isinstance(block, Merge):
            reached = segment_rows(block.pieces.segments[-1], aggregation).last
            for run in block.inputs:
                yield [s for s in _stretches(run, aggregation, reached) if len(s)]
        yield _stretches(block.pieces if isinstance(block, Merge) else block, aggregation, None)


def _stretches(run: Run, aggregation: Aggregation, reached: int | None) -> list[_Stretch]:
    opened = [segment_rows(segment, aggregation) for segment in run.segments]
    return [_Stretch(rows, rows.upto(reached)) for rows in opened]


def _edges(stretches: Sequence[_Stretch], rows: int) -> I64:
    """Begin and end of `RANGES` ranges of hashes, evenly spread, which hold about `SAMPLED` of so many rows."""
    low = min(stretch.rows.first for stretch in stretches)
    span = max(stretch.rows.last for stretch in stretches) - low + 1
    wide = max(1, span * SAMPLED // (rows * RANGES))
    begins = [low + span * number // RANGES for number in range(RANGES)]
    return np.array([edge for begin in begins for edge in (begin, begin + wide)], dtype=np.int64)
