"""What stateless operators do to rows, as expressions: which rows stay, and which columns they then have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.language.connectors import Declined, TaskReader
from holdfast.language.tables import parts_of, tables_of
from holdfast.operators.expressions.kernels import as_column, evaluate
from holdfast.operators.expressions.nodes import Expression, refs


@dataclass(frozen=True)
class Change:
    """Rows for which all conditions hold, one after the other: what a later one would fail on, an earlier one may have left out.
    Then the output columns, by name, all over columns of the input."""

    conditions: tuple[Expression, ...]
    outputs: tuple[tuple[str, Expression], ...]
    schema: pa.Schema
    """Of the output, positions among it if they came."""
    spare: str
    """An input column that is read where none is needed, to have the rows."""

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Input columns for these output columns."""
        wanted = set(columns)
        outputs = [expression for name, expression in self.outputs if name in wanted]
        found = dict.fromkeys(name for each in (*self.conditions, *outputs) for name in refs(each))
        return tuple(found) or (self.spare,)

    def applied(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """These columns of the output, from what they need of the input. Declined if these rows are for Catalyst."""
        wanted, outputs = set(columns), dict(self.outputs)
        left = [*self.conditions, *(expression for name, expression in self.outputs if name in wanted)]
        for condition in self.conditions:
            left.remove(condition)
            mask = as_column(evaluate(condition, rows), rows.num_rows)
            later = {name for each in left for name in refs(each)} or {rows.column_names[0]}
            rows = rows.select([name for name in rows.column_names if name in later]).filter(mask)
        made = [as_column(evaluate(outputs[name], rows), rows.num_rows) for name in columns]
        schema = pa.schema([self.schema.field(name) for name in columns])
        for column, field in zip(made, schema, strict=True):
            if column.type != field.type:
                raise Declined(f"column {field.name!r} came as {column.type}, not {field.type}")
        return pa.Table.from_arrays(made, schema=schema)


@dataclass(frozen=True)
class ChangedReader:
    """Reads rows and changes them as an operator does, in the task that wants them."""

    rows: TaskReader
    change: Change
    operator: str

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return self._changed(self.rows(self.change.needs(columns)), columns)

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        return (self._changed(rows, columns) for rows in tables_of(self.rows, self.change.needs(columns)))

    def parts(self) -> list[TaskReader]:
        return [replace(self, rows=part) for part in parts_of(self.rows)]

    def _changed(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        try:
            return self.change.applied(rows, columns)
        except Declined as declined:
            declined.by = self.operator
            raise
