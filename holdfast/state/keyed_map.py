"""One partition's keyed state as a *version*: a short list of immutable segments, the newest last.

Invariants:
- A key's state is its row in the newest segment that has the key; older rows are ignored.
- Within a segment each key occurs once, and rows ascend by `__hf_hash`. Keys may share a hash.
- A version never changes. A step reads version n−1 and gives version n, under names of its own; it deletes nothing.
- Sizes fall roughly geometrically from base to newest, so a step costs what its batch costs: the base is
  rewritten only after as many rows have come as it has, and a look-up visits a bounded number of segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates import (
    Aggregation,
    as_int64,
    combine,
    finish,
    joined_columns,
    partial,
    running,
    single,
)
from holdfast.state.grouping import Bools, group_rows, rows_equal
from holdfast.state.hashing import HASH_COLUMN, I64, KEY_GROUPS, key_group, partition_of_group
from holdfast.state.segment import Segment, open_segment, write_segment


@dataclass(frozen=True, slots=True)
class Version:
    """The state of one partition: base first, newest delta last. No segments: no key has a state."""

    segments: tuple[Segment, ...] = ()

    @property
    def rows(self) -> int:
        """Rows in all segments: at least the number of keys."""
        return sum(segment.rows for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Bounds:
    """When segments are merged. More segments than `segments_max` are never kept; before that, a segment joins
    the newer ones as soon as it has at most `growth` times their rows and there are more than `segments_lazy`."""

    segments_max: int = 12
    segments_lazy: int = 4
    growth: float = 1.0


DEFAULT_BOUNDS = Bounds()


def apply_batch(
    version: Version,
    batch: pa.Table,
    aggregation: Aggregation,
    directory: Path,
    name_prefix: str,
    *,
    emit: Literal["changes", "each"] = "changes",
    order_by: Sequence[str] = (),
    bounds: Bounds = DEFAULT_BOUNDS,
) -> tuple[Version, pa.Table]:
    """One step: (new version, output). `batch` holds input rows of this partition, with `__hf_hash` if known.

    emit="changes": one row per key of the batch, ascending by hash. emit="each": one row per input row in the order of
    `order_by`, which is sorted by first (none: the order of the batch) and whose columns are appended to the output.
    `name_prefix` carries operator, partition, step and attempt. An empty batch leaves the version as it is.
    """
    if emit == "changes":
        pieces = [partial(aggregation, batch)]
        return apply_partial(version, pieces, aggregation, directory, name_prefix, bounds=bounds)
    batch = sort_by_position(batch, order_by)
    keys = partial(Aggregation(aggregation.by, (), aggregation.schema), batch)
    output, changed = running(aggregation, batch, lookup(version, keys, aggregation))
    for name in order_by:
        output = output.append_column(batch.schema.field(name), batch.column(name))
    return _advance(version, changed, aggregation, directory, name_prefix, bounds), output


def apply_partial(
    version: Version,
    partials: Sequence[pa.Table],
    aggregation: Aggregation,
    directory: Path,
    name_prefix: str,
    *,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> tuple[Version, pa.Table]:
    """The same, emit="changes", from what `partial` made of pieces of the batch in the mapping tasks."""
    keys = partials[0] if len(partials) == 1 else combine(aggregation, partials)
    changed = combine(aggregation, [lookup(version, keys, aggregation), keys])
    output = finish(aggregation, changed)  # first: what it refuses must not leave a segment behind
    return _advance(version, changed, aggregation, directory, name_prefix, bounds), output


def _advance(
    version: Version,
    changed: pa.Table,
    aggregation: Aggregation,
    directory: Path,
    prefix: str,
    bounds: Bounds,
) -> Version:
    if not changed.num_rows:
        return version
    merge, first = _merge_plan([*(s.rows for s in version.segments), changed.num_rows], bounds)
    if not merge:
        return Version((*version.segments, write_segment(directory, f"{prefix}-delta", changed)))
    joined = last_wins(aggregation, [*(_opened(s, aggregation) for s in version.segments[first:]), changed])
    return Version((*version.segments[:first], write_segment(directory, f"{prefix}-merged", joined)))


def _merge_plan(rows: Sequence[int], bounds: Bounds) -> tuple[bool, int]:
    """(whether to merge, index of the first segment to merge); the rows of the new delta are last."""
    first = len(rows) - 1
    if len(rows) > bounds.segments_lazy:
        newer = rows[-1]
        while first > 0 and rows[first - 1] <= bounds.growth * newer:
            first -= 1
            newer += rows[first]
    first = min(first, max(bounds.segments_max - 1, 0))
    return first < len(rows) - 1, first


# --- look-up --------------------------------------------------------------------------------------------------------


def lookup(version: Version, keys: pa.Table, aggregation: Aggregation) -> pa.Table:
    """The state rows of those keys that have one, in no particular order.

    `keys` has `__hf_hash` and the key columns in canonical form (as `partial` gives them), each key once.
    """
    hashes = as_int64(single(keys.column(HASH_COLUMN)))
    wanted = [single(keys.column(name)) for name in aggregation.by]
    missing = np.arange(len(hashes))
    found = [aggregation.state_schema.empty_table()]
    for segment in reversed(version.segments):
        if not len(missing):
            break
        table = _opened(segment, aggregation)
        hits, rows = _find(table, aggregation.by, hashes, wanted, missing)
        found.append(table.take(pa.array(rows)))
        missing = missing[~hits]
    return pa.concat_tables(found)


def _find(
    table: pa.Table, by: Sequence[str], hashes: I64, wanted: Sequence[pa.Array], which: I64
) -> tuple[Bools, I64]:
    """(for each of `which`: is its key here, the rows of those that are)."""
    stored = as_int64(single(table.column(HASH_COLUMN)))
    keys = [single(table.column(name)) for name in by]
    candidate = np.searchsorted(stored, hashes[which])
    rows = np.full(len(which), -1, dtype=np.int64)
    open_ = np.arange(len(which))
    while len(open_):
        # Keys that share the hash lie side by side: try the first, then for those still open the next, …
        inside = candidate[open_] < len(stored)
        open_ = open_[inside]
        open_ = open_[stored[candidate[open_]] == hashes[which[open_]]]
        equal = rows_equal(keys, candidate[open_], wanted, which[open_])
        rows[open_[equal]] = candidate[open_[equal]]
        open_ = open_[~equal]
        candidate[open_] += 1
    return rows >= 0, rows[rows >= 0]


# --- merging --------------------------------------------------------------------------------------------------------


def last_wins(aggregation: Aggregation, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of state rows, oldest first, as one: for each key its newest row; ascending by hash."""
    columns = joined_columns(aggregation.state_schema, tables[::-1])
    grouping = group_rows(as_int64(columns[0]), columns[1 : 1 + len(aggregation.by)])
    newest = pa.array(grouping.first_rows)
    return pa.Table.from_arrays([column.take(newest) for column in columns], schema=aggregation.state_schema)


def compact(version: Version, aggregation: Aggregation, directory: Path, name: str) -> Version:
    """The same state as a single segment."""
    if len(version.segments) <= 1:
        return version
    return Version((write_segment(directory, name, contents(version, aggregation)),))


def contents(version: Version, aggregation: Aggregation) -> pa.Table:
    """Every key's state row, ascending by hash. Costs what the state costs; for inspection, compaction and tests."""
    return last_wins(aggregation, [_opened(segment, aggregation) for segment in version.segments])


def merge_versions_for(
    partition: int,
    partitions: int,
    versions: Sequence[Version],
    aggregation: Aggregation,
    directory: Path,
    name: str,
    *,
    groups: int = KEY_GROUPS,
) -> Version:
    """The version of `partition` when a state is restored with another number of partitions.

    `versions`: of all old partitions (or those whose key groups overlap); each key occurs in one of them only.
    """
    pieces = []
    for version in versions:
        kept = [
            split_by_groups(_opened(s, aggregation), partition, partitions, groups) for s in version.segments
        ]
        pieces.append(last_wins(aggregation, kept))
    joined = last_wins(aggregation, pieces)
    return Version((write_segment(directory, name, joined),)) if joined.num_rows else Version()


def split_by_groups(table: pa.Table, partition: int, partitions: int, groups: int = KEY_GROUPS) -> pa.Table:
    """The rows whose key groups belong to `partition`."""
    hashes = as_int64(single(table.column(HASH_COLUMN)))
    owner = partition_of_group(key_group(hashes, groups), partitions, groups)
    return table.filter(pa.array(owner == partition))


# --- helpers --------------------------------------------------------------------------------------------------------


def sort_by_position(batch: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """The batch in the order of its position columns, which are integers without nulls."""
    columns = [as_int64(single(batch.column(name))) for name in order_by]
    varying = [column for column in columns if len(column) and (column != column[0]).any()]
    if not varying or (len(varying) == 1 and (varying[0][1:] >= varying[0][:-1]).all()):
        return batch
    order = np.lexsort(varying[::-1]) if len(varying) > 1 else np.argsort(varying[0], kind="stable")
    return batch.take(pa.array(order))


def _opened(segment: Segment, aggregation: Aggregation) -> pa.Table:
    table = open_segment(segment.path)
    if not table.schema.equals(aggregation.state_schema):
        raise StateError(
            f"the segment {segment.name} has columns {table.schema.names}, "
            f"the operator wants {aggregation.state_schema.names}.",
            cure="Restore with the aggregates and types it was made with, or start from an empty store.",
        )
    return table
