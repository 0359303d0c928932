"""One partition's keyed state as a *version*: a short list of immutable segments, the newest last.

Invariants:
- A key's state is its row in the newest segment that has the key; older rows are ignored.
- Within a segment each key occurs once, and rows ascend by `__hf_hash`. Keys may share a hash.
- A version never changes. A step reads version n−1 and gives version n, under names of its own; it deletes nothing.
- A step costs what its batch costs: merging is spread over steps by a budget (merge_plan.py, compaction.py), the base is
  rewritten only after as many rows have come as it has, and a look-up visits a bounded number of runs (lookup.py).
- Merges under way can be read off the list itself (layout.py); whoever does not know them still finds every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import (
    Aggregation,
    as_int64,
    combine,
    finish,
    partial,
    running,
    single,
)
from holdfast.state.columns.hashing import HASH_COLUMN, KEY_GROUPS, key_group, partition_of_group
from holdfast.state.keyed.compaction import advance, last_wins, ranges
from holdfast.state.keyed.layout import piece_name
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS, Bounds
from holdfast.state.keyed.segment import Segment, opened, write_segment


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
    changed = find_rows(version.segments, keys, aggregation).combined()
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
    return Version(advance(version.segments, changed, aggregation, directory, prefix, bounds))


def lookup(version: Version, keys: pa.Table, aggregation: Aggregation) -> pa.Table:
    """The state rows of those keys that have one, in no particular order.

    `keys` has `__hf_hash` and the key columns in canonical form (as `partial` gives them), each key once.
    """
    return find_rows(version.segments, keys, aggregation).as_table()


# --- the whole state ------------------------------------------------------------------------------------------------


def contents(version: Version, aggregation: Aggregation) -> pa.Table:
    """Every key's state row, ascending by hash. Costs what the state costs; for inspection, compaction and tests."""
    return last_wins(aggregation, [opened(segment, aggregation).table for segment in version.segments])


def merge_versions_for(
    partition: int,
    partitions: int,
    versions: Sequence[Version],
    aggregation: Aggregation,
    directory: Path,
    name: str,
    *,
    groups: int = KEY_GROUPS,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Version:
    """The version of `partition` when a state is restored with another number of partitions: one run.

    `versions`: of all old partitions (or those whose key groups overlap); each key occurs in one of them only.
    """
    sources = [opened(segment, aggregation) for version in versions for segment in version.segments]
    pieces: list[Segment] = []
    bounds = bounds.fitting(sum(v.rows for v in versions), sum(v.bytes for v in versions))
    for slices in ranges(sources, bounds.piece_rows):
        kept = [split_by_groups(table, partition, partitions, groups) for table in slices.tables]
        joined = last_wins(aggregation, kept)
        if joined.num_rows:
            pieces.append(write_segment(directory, piece_name(f"{name}-{len(pieces)}", 0, 0), joined))
    return Version(tuple(pieces))


def split_by_groups(table: pa.Table, partition: int, partitions: int, groups: int = KEY_GROUPS) -> pa.Table:
    """The rows whose key groups belong to `partition`."""
    hashes = as_int64(single(table.column(HASH_COLUMN)))
    owner = partition_of_group(key_group(hashes, groups), partitions, groups)
    return table.filter(pa.array(owner == partition))


def sort_by_position(batch: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """The batch in the order of its position columns, which are integers without nulls."""
    columns = [as_int64(single(batch.column(name))) for name in order_by]
    varying = [column for column in columns if len(column) and (column != column[0]).any()]
    if not varying or (len(varying) == 1 and (varying[0][1:] >= varying[0][:-1]).all()):
        return batch
    order = np.lexsort(varying[::-1]) if len(varying) > 1 else np.argsort(varying[0], kind="stable")
    return batch.take(pa.array(order))
