"""The keyed stage as it runs beside the data: on Spark's executors, or in the local engine's process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.runtime.engine import KeyedState, KeyedTask
from holdfast.state.aggregates import Aggregation, partial
from holdfast.state.hashing import HASH_COLUMN, key_group, key_hash, partition_of_group
from holdfast.state.keyed_map import Version, apply_batch, apply_partial, merge_versions_for
from holdfast.state.segment import Segment

Segments = tuple[Segment, ...]


def columns_of(task: KeyedTask) -> list[str]:
    """Input columns the operator needs, with positions where rows are applied in their order."""
    positions = POSITION_COLUMNS if task.stamped else ()
    return [*aggregation_of(task).schema.names, *positions]


def output_schema_of(task: KeyedTask) -> pa.Schema:
    """Columns of the output as it travels."""
    schema = task.output_schema
    if task.stamped_output:
        for field in POSITION_FIELDS:
            schema = schema.append(field)
    return schema


def aggregation_of(task: KeyedTask) -> Aggregation:
    return _aggregation(task.spec.by, task.spec.aggregates, task.input_schema)


@lru_cache(maxsize=64)
def _aggregation(by: tuple[str, ...], aggregates: tuple[Any, ...], schema: pa.Schema) -> Aggregation:
    return Aggregation.plan(by, aggregates, schema)


def own_rows(task: KeyedTask, rows: pa.Table, partition: int, partitions: int) -> pa.Table:
    """The rows whose keys belong to `partition`, with their hashes."""
    hashes = key_hash([rows.column(name) for name in task.spec.by])
    rows = rows.append_column(HASH_COLUMN, pa.array(hashes))
    if partitions == 1:
        return rows
    return rows.filter(pa.array(partition_of_group(key_group(hashes), partitions) == partition))


def prepared(task: KeyedTask, rows: pa.Table) -> pa.Table:
    """What travels to the partitions that own the keys, with hashes: sums of rows where these will do, else rows."""
    if task.spec.emit == "changes":
        return partial(aggregation_of(task), rows)
    if HASH_COLUMN in rows.column_names:
        return rows
    return rows.append_column(HASH_COLUMN, pa.array(key_hash([rows.column(name) for name in task.spec.by])))


def split(pieces: pa.Table, partitions: int) -> dict[int, pa.Table]:
    """Prepared rows by the partition that owns their key group; partitions without rows are left out."""
    if not pieces.num_rows:
        return {}
    hashes = np.asarray(pieces.column(HASH_COLUMN).to_numpy())
    owners = partition_of_group(key_group(hashes), partitions)
    return {int(p): pieces.filter(pa.array(owners == p)) for p in np.unique(owners)}


def apply_partition(
    task: KeyedTask, segments: Segments, pieces: Sequence[pa.Table], directory: Path, prefix: str
) -> tuple[Segments, pa.Table]:
    """One partition's share of a step, from prepared pieces: its new version and what it emits."""
    directory.mkdir(parents=True, exist_ok=True)
    aggregation = aggregation_of(task)
    if task.spec.emit == "changes":
        version, output = apply_partial(Version(segments), pieces, aggregation, directory, prefix)
    else:
        rows = pa.concat_tables(pieces)
        version, output = apply_batch(
            Version(segments), rows, aggregation, directory, prefix, emit="each", order_by=POSITION_COLUMNS
        )
    schema = output_schema_of(task)
    return version.segments, output.select(schema.names).cast(schema)


def repartition(task: KeyedTask, old: Sequence[Segments], directory: Path, partitions: int) -> KeyedState:
    """The same state dealt out over another number of partitions."""
    versions = [Version(segments) for segments in old]
    name = old_name(old)
    return KeyedState(
        tuple(
            merge_versions_for(
                p, partitions, versions, aggregation_of(task), directory, f"{name}-of{partitions}-p{p}"
            ).segments
            for p in range(partitions)
        )
    )


def old_name(old: Sequence[Segments]) -> str:
    """A name for what a state was dealt out from: that of its newest segment."""
    names = [segments[-1].name for segments in old if segments]
    return names[0][:60] if names else "empty"
