"""The best rows of each key, of all time or of windows; which they are is decided in `state/aggregates/best_rows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import TimeWindow
from holdfast.language.operators.ranking import RANK
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.logic import (
    Applied,
    KeyedLogic,
    Place,
    PortRows,
    Segments,
    Share,
    own_rows,
    split,
    with_hashes,
)
from holdfast.operators.shared.timed import Arrived, TimedPort
from holdfast.state.aggregates.aggregation import Aggregation, combine, finish, partial, single
from holdfast.state.aggregates.best_rows import Order, changed_lists, exploded, top_name
from holdfast.state.aggregates.function_names import POSITION
from holdfast.state.columns.whole_rows import row_type, whole_rows
from holdfast.state.keyed.compaction import advance
from holdfast.state.keyed.lookup import Found, find_rows
from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS
from holdfast.state.keyed.segment import Segment
from holdfast.state.windows.time_windows import END, START, Windows

_ROW = "__hf_whole"
_BEST = "__hf_best"
_ALL = "__hf_all"
"""The key of all rows, where no key columns are given."""


@dataclass(frozen=True)
class TopRows(MapLogic):
    """The best rows a key has had. Sums travel, not rows: at most so many rows of a key leave a mapping task."""

    aggregation: Aggregation
    by: tuple[str, ...]
    input: pa.Schema
    output: pa.Schema

    @staticmethod
    def plan(count: int, by: tuple[str, ...], order: Order, schema: pa.Schema, output: pa.Schema) -> TopRows:
        widened = schema.append(pa.field(_ROW, row_type(schema))).append(pa.field(_ALL, pa.int64()))
        best = ((_BEST, top_name(count, order), _ROW),)
        return TopRows(Aggregation.plan(by or (_ALL,), best, widened), by, schema, output)

    @property
    def keyed_map(self) -> Aggregation:
        return self.aggregation

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (self.output,)

    def own(self, rows: PortRows, partition: int, partitions: int) -> list[pa.Table] | None:
        mine = own_rows(rows[0], self.by, partition, partitions)
        return [self._prepared(mine)] if mine.num_rows else None

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return split(self._prepared(rows), partitions)

    def gather(self, shares: Sequence[Share]) -> list[pa.Table] | None:
        return [rows for _, rows in shares] or None

    def apply(self, segments: Segments, meta: object, arrived: list[pa.Table], place: Place) -> Applied:
        keys = arrived[0] if len(arrived) == 1 else combine(self.aggregation, arrived)
        found = find_rows(segments, keys, self.aggregation)
        changed = self._changed(found)
        best = finish(self.aggregation, changed)
        output = ranked(best, self.output)  # first: what fails must not leave a segment behind
        if changed.num_rows:
            segments = advance(
                segments, changed, self.aggregation, place.directory, place.prefix, DEFAULT_BOUNDS
            )
        return Applied(segments, (output,))

    def _changed(self, found: Found) -> pa.Table:
        """The new state rows of the keys whose list is another than before: positions tell rows apart."""
        combined = found.combined()
        changed = np.ones(combined.num_rows, dtype=np.bool_)
        at = pa.array(found.rows)
        positions = [single(column).take(at) for column in combined.columns[-2:]]
        changed[found.rows] = changed_lists(found.values[-2:], positions)
        return combined if changed.all() else combined.take(pa.array(np.flatnonzero(changed)))

    def _prepared(self, rows: pa.Table) -> pa.Table:
        rows = with_whole_rows(with_hashes(rows, self.by), self.input)
        if not self.by:
            rows = rows.append_column(_ALL, pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        return partial(self.aggregation, rows)


@dataclass(frozen=True)
class TopOfWindows(KeyedLogic):
    """The best rows of each window: an aggregate over windows that keeps rows, unfolded when a window is complete."""

    windowed: WindowedAggregate
    input: pa.Schema
    output: pa.Schema

    @staticmethod
    def plan(
        count: int, order: Order, window: TimeWindow, port: TimedPort, schema: pa.Schema, output: pa.Schema
    ) -> TopOfWindows:
        widened = schema.append(pa.field(_ROW, row_type(schema)))
        best = ((_BEST, top_name(count, order), _ROW),)
        windows = Windows.plan(window.size_us, window.slide_us, window.lateness_us, port.by, best, widened)
        moments = [output.field(START), output.field(END)]
        results = [*moments, windows.aggregation.output_schema.field(_BEST)]
        return TopOfWindows(WindowedAggregate(windows, port, widened, pa.schema(results)), schema, output)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (self.output,)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        return self.windowed.own({0: self._prepared(rows[0])}, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return self.windowed.shares(port, self._prepared(rows), partitions)

    def gather(self, shares: Sequence[Share]) -> Arrived | None:
        return self.windowed.gather(shares)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        applied = self.windowed.apply(segments, meta, arrived, place)
        return replace(applied, outputs=(ranked(applied.outputs[0], self.output),))

    def at(self, meta: Any, now_us: int) -> Any:
        return self.windowed.at(meta, now_us)

    def resumed(self, meta: Any) -> Any:
        return self.windowed.resumed(meta)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        return self.windowed.repartition(old, partition, partitions, place)

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return self.windowed.evolved(segment, table)

    def _prepared(self, rows: pa.Table) -> pa.Table:
        """Keys, time and position of the rows, and the rows themselves."""
        needed = dict.fromkeys((*self.windowed.columns[0], *self.windowed.port.by))
        return with_whole_rows(rows, self.input).select(list(needed))


def with_whole_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with themselves as one more column."""
    return rows.append_column(_ROW, whole_rows(rows, row_type(schema)))


def ranked(best: pa.Table, output: pa.Schema) -> pa.Table:
    """Lists of rows as rows: with their ranks, and beside them what stood beside the lists."""
    index, ranks, rows = exploded(single(best.column(_BEST)))
    at = pa.array(index)
    beside = {name: best.column(name).take(at) for name in (START, END) if name in output.names[:2]}
    own = {field.name: rows.field(field.name) for field in rows.type}
    columns = {**own, RANK: pa.array(ranks), **beside}
    return pa.table({name: columns[name] for name in output.names}).cast(output)
