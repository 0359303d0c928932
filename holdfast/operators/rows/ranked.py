"""The best rows of each key, of all time or of windows; which they are is decided in `state/aggregates/ordered_values.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.rows import RANK, TopNSpec, top_n_schema
from holdfast.language.operators.values import TimeWindow, idle_text
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.fingerprint import Fingerprint, columns_of, key_of, keyed_frame
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Schemas, register
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.logic import Applied, KeyedLogic, Place, PortRows, Segments, with_hashes
from holdfast.operators.shared.timed import Arrived, TimedPort
from holdfast.operators.stored.rows import Function, Functions, RowsOfWindows
from holdfast.operators.stored.views import BEST
from holdfast.state.aggregates.aggregation import Aggregation, combine, finish, partial, single
from holdfast.state.aggregates.function_names import POSITION
from holdfast.state.aggregates.ordered_values import Order, changed_lists, exploded, top_name
from holdfast.state.columns.arrays import row_type, whole_rows
from holdfast.state.keyed.lookup import Found, find_rows
from holdfast.state.windows.time_windows import END, START, Windows

_ROW = "__hf_whole"
_ALL = "__hf_all"
"""The key of all rows, where no key columns are given."""


@dataclass(frozen=True)
class TopRows(MapLogic):
    """The best rows a key has had. Sums travel, not rows: at most as many rows of a key as its list has leave a mapping task."""

    by: tuple[str, ...]
    input: pa.Schema

    @staticmethod
    def plan(count: int, by: tuple[str, ...], order: Order, schema: pa.Schema, output: pa.Schema) -> TopRows:
        widened = schema.append(pa.field(_ROW, row_type(schema))).append(pa.field(_ALL, pa.int64()))
        best = ((BEST, top_name(count, order), _ROW),)
        return TopRows(Aggregation.plan(by or (_ALL,), best, widened), output, False, by, schema)

    @property
    def key(self) -> Sequence[str]:
        return self.by

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION),)

    def prepared(self, rows: pa.Table) -> pa.Table:
        rows = with_whole_rows(with_hashes(rows, self.by), self.input)
        if not self.by:
            rows = rows.append_column(_ALL, pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        return partial(self.keyed_map, rows)

    def apply(self, segments: Segments, meta: object, arrived: list[pa.Table], place: Place) -> Applied:
        keys = arrived[0] if len(arrived) == 1 else combine(self.keyed_map, arrived)
        found = find_rows(segments, keys, self.keyed_map)
        changed = self._changed(found)
        output = ranked(finish(self.keyed_map, changed), self.output)
        return Applied(self.advanced(segments, changed, place), (output,))

    def _changed(self, found: Found) -> pa.Table:
        """The new state rows of the keys whose list is another than before: positions tell rows apart."""
        combined = found.combined()
        changed = np.ones(combined.num_rows, dtype=np.bool_)
        at = pa.array(found.rows)
        positions = [single(column).take(at) for column in combined.columns[-2:]]
        changed[found.rows] = changed_lists(found.values[-2:], positions)
        return combined if changed.all() else combined.take(pa.array(np.flatnonzero(changed)))


@dataclass(frozen=True)
class TopOfWindows(WindowedAggregate):
    """The best rows of each window: an aggregate over windows that keeps rows, unfolded when a window is complete.
    `rows`: the columns of input rows, `best`: those that come out."""

    rows: pa.Schema
    best: pa.Schema

    @staticmethod
    def plan(
        count: int, order: Order, window: TimeWindow, port: TimedPort, schema: pa.Schema, output: pa.Schema
    ) -> TopOfWindows:
        widened = schema.append(pa.field(_ROW, row_type(schema)))
        port = replace(port, schema=widened)
        best = ((BEST, top_name(count, order), _ROW),)
        windows = Windows.plan(window.size_us, window.slide_us, window.lateness_us, port.by, best, widened)
        moments = [output.field(START), output.field(END)]
        results = pa.schema([*moments, windows.aggregation.output_schema.field(BEST)])
        return TopOfWindows(port, widened, results, False, None, windows, rows=schema, best=output)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.rows.names, *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return (self.best,)

    def own(self, rows: PortRows, partition: int, partitions: int) -> Arrived | None:
        ready = {port: self._prepared(port, given) for port, given in rows.items()}
        return super().own(ready, partition, partitions)

    def shares(self, port: int, rows: pa.Table, partitions: int) -> dict[int, pa.Table]:
        return super().shares(port, self._prepared(port, rows), partitions)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        applied = super().apply(segments, meta, arrived, place)
        return replace(applied, outputs=(ranked(applied.outputs[0], self.best),))

    def _prepared(self, port: int, rows: pa.Table) -> pa.Table:
        """Keys, time and position of the rows, and the rows themselves; times that travel beside rows as they are."""
        if port < 0:
            return rows
        needed = dict.fromkeys((*super().columns[0], *self.port.by))
        return with_whole_rows(rows, self.rows).select(list(needed))


def with_whole_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with themselves as one more column."""
    return rows.append_column(_ROW, whole_rows(rows, row_type(schema)))


def ranked(best: pa.Table, output: pa.Schema) -> pa.Table:
    """Lists of rows as rows: with their ranks, and beside them what stood beside the lists."""
    index, ranks, rows = exploded(single(best.column(BEST)))
    at = pa.array(index)
    beside = {name: best.column(name).take(at) for name in (START, END) if name in output.names[:2]}
    own = {field.name: rows.field(field.name) for field in rows.type}
    columns = {**own, RANK: pa.array(ranks), **beside}
    return pa.table({name: columns[name] for name in output.names}).cast(output)


class StoredTops(RowsOfWindows):
    def functions(self) -> Functions:
        return {BEST: Function(top_name(self.fingerprint.frame["n"], self.fingerprint.frame["order"]))}


@register
class TopNKind(KeyedKind[TopNSpec]):
    spec = TopNSpec
    stored = StoredTops
    needs_positions = Ordering(
        "ranks rows",
        "Rank the rows of each source by itself, or bring them into one order before: .sort(on='at', …).",
    )

    def schemas(self, op: OperatorOf[TopNSpec], inputs: Schemas) -> list[pa.Schema]:
        return [top_n_schema(inputs[0], op.spec)]

    def what(self, op: OperatorOf[TopNSpec]) -> str:
        spec, panes = op.spec, ""
        best = ", ".join(f"{'-' if descending else ''}{column}" for column, descending in spec.order)
        if (window := spec.window) is not None:
            panes = f", windows of {window.size_us / 1e6:g} s of {window.on}{idle_text(window.idle_us)}"
        return f"first {spec.n} by {', '.join(spec.by) or 'nothing'} in the order of {best}{panes}"

    def fingerprint(self, op: OperatorOf[TopNSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        spec = op.spec
        frame = keyed_frame(key_of(inputs[0], spec.by), n=spec.n, order=spec.order)
        panes = {} if spec.window is None else spec.window.frame
        return Fingerprint(self.name, {**frame, **panes}, {"rows": columns_of(inputs[0])})

    def logic(self, planned: Planned[TopNSpec]) -> KeyedLogic:
        spec, (schema,), window = planned.op.spec, planned.inputs, planned.op.spec.window
        if window is None:
            return TopRows.plan(spec.n, spec.by, spec.order, schema, planned.output)
        port = planned.timed_port(0, spec.by, window.on, window.delays_us, window.idle_us)
        return TopOfWindows.plan(spec.n, spec.order, window, port, schema, planned.output)
