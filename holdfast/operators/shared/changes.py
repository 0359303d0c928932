"""What several steps changed, as one: the delta of a checkpoint, or the deltas of a chain that is restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holdfast.durable import remove_quietly
from holdfast.operators.shared.logic import Segments
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed.keyed_map import last_wins, ranges
from holdfast.state.keyed.layout import Run, blocks_of, is_piece, piece_name
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS
from holdfast.state.keyed.segment import Segment, open_segment, write_segment
from holdfast.store.base import SegmentRef


def stored_changes(
    rows: Aggregation,
    changes: Segments,
    directory: Path,
    put: Callable[[Segment], SegmentRef],
    as_base: bool = False,
) -> list[SegmentRef]:
    """Store what several steps changed in one partition, each key once, the steps' segments given oldest first.

    What is stored is a run of its own and not named like a piece of a merge. `as_base`: the segments are a whole
    version; then it is one run in pieces, since nothing lies before it. Names follow from what is joined, so that a
    repeated upload stores the same bytes again."""
    if len(changes) == 1 and not is_piece(changes[0]):
        return [put(changes[0])]
    name = f"{changes[-1].name}-of{len(changes)}"

    def named(part: int) -> str:
        return piece_name(f"{name}-{part}", 0, 0) if as_base else f"{name}-part{part}"

    if not as_base and _is_joined(changes):
        return [put(replace(segment, name=named(k))) for k, segment in enumerate(changes)]
    joined = _joined(rows, changes, directory, named)
    try:
        return [put(segment) for segment in joined]
    finally:
        for segment in joined:
            remove_quietly(segment.path)


def _is_joined(changes: Segments) -> bool:
    """True if merging has made one run of them: no key occurs twice."""
    blocks = blocks_of(changes)
    return len(blocks) == 1 and isinstance(blocks[0], Run)


def one_run(rows: Aggregation, segments: Segments, directory: Path, number: int) -> Segments:
    """Neighbouring runs of a version as one, oldest first; `number` is that of no merge in the version."""
    name = segments[-1].name
    return _joined(rows, segments, directory, lambda k: piece_name(f"{name}-joined{k}", number, 0))


def _joined(rows: Aggregation, segments: Segments, directory: Path, name: Callable[[int], str]) -> Segments:
    sources = [SortedRows(open_segment(segment.path)) for segment in segments]
    bounds = DEFAULT_BOUNDS.fitting(sum(map(len, sources)), sum(segment.bytes for segment in segments))
    return tuple(
        write_segment(directory, name(k), last_wins(rows, slices.tables))
        for k, slices in enumerate(ranges(sources, bounds.piece_rows))
    )
