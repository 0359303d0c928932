"""Rows beside those of a table at hand: a broadcast join on Spark, an index of keys without."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.lookup import LookupSpec, lookup_schema, right_rows
from holdfast.operators.kind import OperatorOf, Schemas, Timing, register
from holdfast.operators.stateless import Frames, StatelessKind
from holdfast.state.columns.key_index import KeyIndex

_KEY = "__hf_key_"


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

        def with_keys_apart(table: pa.Table) -> Any:
            right = right_rows(schema, spec, table)
            return spark.from_table(
                session,
                right.rename_columns(
                    [f"{_KEY}{name}" if name in spec.by else name for name in right.column_names]
                ),
            )

        right = spec.table.made(session, with_keys_apart)
        equal = [frame[f"`{name}`"] == right[f"`{_KEY}{name}`"] for name in spec.by]
        joined = frame.join(right.hint("broadcast"), equal, spec.how)
        return [joined.drop(*(f"{_KEY}{name}" for name in spec.by))]

    def tables(self, op: OperatorOf[LookupSpec], rows: pa.Table) -> list[pa.Table]:
        spec = op.spec
        own = [name for name in rows.column_names if name not in POSITION_COLUMNS]
        right, index = spec.table.made(self, partial(_indexed, rows.select(own).schema, spec))
        found = index.find([rows.column(name) for name in spec.by])
        met = right.take(found)
        columns = [*own, *met.column_names, *(name for name in rows.column_names if name not in own)]
        for name in met.column_names:
            rows = rows.append_column(name, met.column(name))
        rows = rows.select(columns)
        return [rows if spec.how == "left" else rows.filter(pc.is_valid(found))]

    def what(self, op: OperatorOf[LookupSpec]) -> str:
        every = "" if op.spec.refresh_s is None else f", read again after {op.spec.refresh_s:g} s"
        return f"by {', '.join(op.spec.by)}{every}"


def _indexed(schema: pa.Schema, spec: LookupSpec, table: pa.Table) -> tuple[pa.Table, KeyIndex]:
    """What rows get of the table, and where each key is in it."""
    right = right_rows(schema, spec, table)
    return right.drop_columns(list(spec.by)), KeyIndex([right.column(name) for name in spec.by])
