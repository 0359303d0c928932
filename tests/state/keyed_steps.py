"""Steps of a keyed map as operators take them, and all that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, combine, finish, partial
from holdfast.state.keyed.keyed_map import advance, last_wins
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS, Bounds
from holdfast.state.keyed.segment import Place, Segments, segment_rows


def apply_batch(
    segments: Segments,
    batch: pa.Table,
    plan: Aggregation,
    directory: Path,
    prefix: str,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> tuple[Segments, pa.Table]:
    """(the map after a step with these rows, a row for each of their keys)."""
    return apply_partial(segments, [partial(plan, batch)], plan, directory, prefix, bounds)


def apply_partial(
    segments: Segments,
    partials: Sequence[pa.Table],
    plan: Aggregation,
    directory: Path,
    prefix: str,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> tuple[Segments, pa.Table]:
    """The same from what `partial` made of pieces of the batch."""
    changed = find_rows(segments, combine(plan, partials), plan).combined()
    return advance(segments, changed, plan, Place(directory, prefix), bounds=bounds), finish(plan, changed)


def contents(segments: Segments, plan: Aggregation) -> pa.Table:
    """Every key's state row, ascending by hash."""
    return last_wins(plan, [segment_rows(segment, plan).table for segment in segments])
