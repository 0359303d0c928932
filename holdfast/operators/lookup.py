"""Rows beside those of a table at hand: a broadcast join on Spark, an index of keys without.

Spark makes what it broadcasts for a join anew in each step, which takes seconds for large tables. So these are indexed once,
in the driver, and sent to the executors once; tasks ask the index."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.operators.lookup import LookupSpec, lookup_schema, right_rows
from holdfast.operators.kind import OperatorOf, Schemas, Timing, register
from holdfast.operators.stateless import Frames, StatelessKind
from holdfast.state.columns.key_index import KeyIndex

_KEY = "__hf_key_"
LARGEST_JOINED = 50_000
"""Rows of a table up to which Spark's own join is as fast or faster."""


@register
class LookupKind(StatelessKind[LookupSpec]):
    spec = LookupSpec
    keeps_positions = True
    expressions = False

    def leaves_time(self, op: OperatorOf[LookupSpec], given: Timing) -> bool:
        return op.spec.how == "left"

    def schemas(self, op: OperatorOf[LookupSpec], inputs: Schemas) -> list[pa.Schema]:
        return [lookup_schema(inputs[0], op.spec)]

    def frames(self, op: OperatorOf[LookupSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        spec, frame = op.spec, spark.frame(rows)
        session, schema = frame.sparkSession, spark.columns(frame)

        def made(table: pa.Table) -> Any:
            if table.num_rows > LARGEST_JOINED:
                return Sent(spark.sent(session, _indexed(schema, spec, table)))
            right = right_rows(schema, spec, table)
            names = [f"{_KEY}{name}" if name in spec.by else name for name in right.column_names]
            return spark.from_table(session, right.rename_columns(names))

        right = spec.table.made(session, made)
        if isinstance(right, Sent):
            fields = {field.name: field for field in (*schema, *POSITION_FIELDS)}
            known = [fields[name] for name in frame.columns]
            added = list(lookup_schema(schema, spec))[len(schema) :]
            return [spark.mapped(frame, partial(_met, spec.by, spec.how, right), pa.schema([*known, *added]))]
        equal = [frame[f"`{name}`"] == right[f"`{_KEY}{name}`"] for name in spec.by]
        joined = frame.join(right.hint("broadcast"), equal, spec.how)
        return [joined.drop(*(f"{_KEY}{name}" for name in spec.by))]

    def tables(self, op: OperatorOf[LookupSpec], rows: pa.Table) -> list[pa.Table]:
        spec = op.spec
        own = [name for name in rows.column_names if name not in POSITION_COLUMNS]
        indexed = spec.table.made(self, partial(_indexed, rows.select(own).schema, spec))
        met = _beside(spec.by, spec.how, indexed, rows)
        added = [name for name in met.column_names if name not in rows.column_names]
        return [met.select([*own, *added, *(name for name in rows.column_names if name not in own)])]

    def what(self, op: OperatorOf[LookupSpec]) -> str:
        every = "" if op.spec.refresh_s is None else f", read again after {op.spec.refresh_s:g} s"
        return f"by {', '.join(op.spec.by)}{every}"


Indexed = tuple[pa.Table, KeyIndex]
"""What rows get of a table, and where each key is in it."""


class Sent(NamedTuple):
    """An indexed table that tasks have: `handle.value`."""

    handle: Any


def _indexed(schema: pa.Schema, spec: LookupSpec, table: pa.Table) -> Indexed:
    right = right_rows(schema, spec, table)
    return right.drop_columns(list(spec.by)), KeyIndex([right.column(name) for name in spec.by])


def _met(by: tuple[str, ...], how: str, sent: Sent, rows: pa.Table) -> pa.Table:
    """What tasks do with their rows."""
    return _beside(by, how, sent.handle.value, rows)


def _beside(by: tuple[str, ...], how: str, indexed: Indexed, rows: pa.Table) -> pa.Table:
    """Rows with the columns of the table behind their own."""
    right, index = indexed
    found = index.find([rows.column(name) for name in by])
    met = right.take(found)
    for name in met.column_names:
        rows = rows.append_column(name, met.column(name))
    return rows if how == "left" else rows.filter(pc.is_valid(found))
