"""What a keyed operator does with the rows of one partition, whatever moves the rows there.

A step of an operator with P partitions: every row reaches the partition that owns its key, either because each
partition's task reads all rows and keeps its own (`own`), or because mapping tasks share them out (`shares`, put
together again by `gather`). Then each partition applies what arrived to its state. Rows come by one or several input
ports. A logic is plain data that travels to the tasks; it holds no state itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, TIMES
from holdfast.operators.stored.parts import Known
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, single
from holdfast.state.columns.hashing import HASH_COLUMN, I64, key_group, key_hash, owned, partition_of_group
from holdfast.state.keyed.row_count import rows_held
from holdfast.state.keyed.segment import Place as Place
from holdfast.state.keyed.segment import Segment
from holdfast.state.keyed.segment import Segments as Segments

PortRows = Mapping[int, pa.Table]
"""The rows of a step by input port; ports without rows are left out, but one has some. Under `times_at(port)` stands what
travelled beside the rows of a port: how far event time was at some positions."""

Share = tuple[int, pa.Table]
"""An input port, and what a mapping task found there for one partition."""


def times_at(port: int) -> int:
    """The number under which the times beside the rows of a port arrive."""
    return -1 - port


@dataclass(frozen=True, slots=True)
class Applied:
    """What a partition gave: its new segments, one table per output port, the new `meta`, and counts for people."""

    segments: Segments
    outputs: tuple[pa.Table, ...]
    meta: Any = None
    counts: Mapping[str, int] = field(default_factory=dict)


class KeyedLogic(ABC):
    """One keyed operator. `meta` is small plain data that is the same for all partitions (a watermark); the driver
    keeps it between steps and stores it with the epoch."""

    @property
    @abstractmethod
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Columns it needs of each input port, positions among them if rows are applied in their order."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[pa.Schema, ...]:
        """Columns of each output port as they travel."""

    def needed(self, port: int) -> tuple[str, ...]:
        """Columns it needs of an input port, or of the times beside it."""
        return tuple(TIMES.names) if port < 0 else self.columns[port]

    def reached(self, meta: Any) -> int | None:
        """The event time up to which its output is complete after a step that left this `meta`; None: nobody knows."""
        return None

    @abstractmethod
    def own(self, rows: PortRows, partition: int, partitions: int) -> Any:
        """Out of all rows of a step what matters to one partition; None if nothing does."""

    def own_of(self, tables: Mapping[int, Iterator[pa.Table]], partition: int, partitions: int) -> Any:
        """The same of rows that come in several tables per port. Who need not have all rows at once reads them one by one."""
        rows = {port: pa.concat_tables(list(found)) for port, found in tables.items()}
        return self.own(rows, partition, partitions)

    @abstractmethod
    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        """A mapping task's rows of one port as tables for the partitions."""

    @abstractmethod
    def gather(self, shares: Sequence[Share]) -> Any:
        """What `own` would have given, from the shares of all mapping tasks; None if there are none."""

    @abstractmethod
    def apply(self, segments: Segments, meta: Any, arrived: Any, place: Place) -> Applied:
        """One partition's share of a step."""

    def at(self, meta: Any, now_us: int) -> Any:
        """The `meta` with which a step begins that the driver starts at this time, by its clock. Only operators in
        processing time look at it."""
        return meta

    def resumed(self, meta: Any) -> Any:
        """The `meta` with which a run goes on that finds this one stored."""
        return meta

    def had(self, meta: Any, counts: Mapping[str, int]) -> tuple[int, ...] | None:
        """How many rows each input brought so far, if the operator keeps windows of a number of their last rows, which
        become stale where rows are missed. None: it does not."""
        return None

    def with_groups(self, rows: int) -> KeyedLogic | None:
        """The same with windows kept in groups of so many rows; None: it keeps none, or the user says how large they are."""
        return None

    def without_stale(
        self, partitions: Sequence[Segments], meta: Any, missed: Sequence[int], places: Sequence[Place]
    ) -> tuple[tuple[Segments, ...], int]:
        """(the segments of all partitions without the rows that the missed ones of each input would have pushed out
        of its window, how many those were). Each partition has a place of its own."""
        return tuple(partitions), 0

    def after_missed(self, meta: Any, missed: Sequence[int]) -> Any:
        """The `meta` that goes with it."""
        return meta

    @abstractmethod
    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        """The segments of `partition` when a state is dealt out over another number of partitions."""

    @property
    def chained(self) -> Aggregation | None:
        """What the rows look like of the keyed map in its state whose changes can be stored instead of the map: a key's
        newest row counts. None: there is no such map, segments are stored as they are."""
        return None

    def parted(self, segments: Segments) -> tuple[Segments, Segments]:
        """(segments of that map, others)."""
        return ((), segments) if self.chained is None else (segments, ())

    def counted_rows(self, counts: Mapping[str, int]) -> int | None:
        """How many rows its state has, if it counts them itself."""
        return None

    def rows_of(self, segments: Segments) -> int:
        """About how many rows one partition's state has; of a keyed map one for each key (`row_count.py`)."""
        of_map, others = self.parted(segments)
        different = 0 if self.chained is None else rows_held(of_map, self.chained)
        return different + sum(segment.rows for segment in others)

    def known(self, meta: Any) -> Known:
        """What it tells those who read stored rows, beside which they found this `meta`."""
        return Known()

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        """The rows of a stored segment in today's form: the same table if the operator has not changed. Raises
        MismatchError if it has changed too much."""
        return table


def with_hashes(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rows with the hashes of their keys. Without key columns all rows belong together."""
    if HASH_COLUMN in rows.column_names:
        return rows
    if by:
        hashes = key_hash([rows.column(name) for name in by])
    else:
        hashes = np.zeros(rows.num_rows, dtype=np.int64)
    return rows.append_column(HASH_COLUMN, pa.array(hashes))


def by_position(rows: pa.Table) -> pa.Table:
    """The rows in the order of their positions."""
    columns = [longs(rows, name) for name in POSITION_COLUMNS]
    varying = [column for column in columns if len(column) and (column != column[0]).any()]
    if not varying or (len(varying) == 1 and (varying[0][1:] >= varying[0][:-1]).all()):
        return rows
    order = np.lexsort(varying[::-1]) if len(varying) > 1 else np.argsort(varying[0], kind="stable")
    return rows.take(pa.array(order))


def longs(table: pa.Table, name: str) -> I64:
    """An integer column as an array."""
    return as_int64(single(table.column(name)))


def hashes_of(rows: pa.Table) -> I64:
    return np.asarray(rows.column(HASH_COLUMN).to_numpy(), dtype=np.int64)


def own_rows(rows: pa.Table, by: Sequence[str], partition: int, partitions: int) -> pa.Table:
    """The rows whose keys belong to `partition`, with their hashes."""
    rows = with_hashes(rows, by)
    if partitions == 1:
        return rows
    mine = owned(hashes_of(rows), partition, partitions)
    if any(column.num_chunks > 1 for column in rows.columns):
        return rows.filter(pa.array(mine))
    return rows.take(pa.array(np.flatnonzero(mine)))  # twice as fast, but would join chunks first


def noted_shares(
    rows: pa.Table, by: Sequence[str], note: dict[bytes, bytes], partitions: int
) -> dict[int, pa.Table]:
    """A mapping task's rows for the partitions, each of which hears what it has to tell, also without rows."""
    rows = with_hashes(rows, by)
    parts, empty = split(rows, partitions), rows.slice(0, 0)
    return {p: parts.get(p, empty).replace_schema_metadata(note) for p in range(partitions)}


def split(rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
    """Rows with hashes by the partition that owns them; partitions without rows are left out."""
    if not rows.num_rows:
        return {}
    owner = partition_of_group(key_group(hashes_of(rows)), partitions)
    return {int(p): rows.filter(pa.array(owner == p)) for p in np.unique(owner)}
