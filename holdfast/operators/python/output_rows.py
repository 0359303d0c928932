"""Rows that Python operators give, brought into the form of their schema: what does not have its columns is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import OperatorFailed, TopologyError
from holdfast.language.hosted import Missing
from holdfast.operators.python.keeping import kept_table, row_keeper
from holdfast.state.columns.from_python import Unfit, column_of, near
from holdfast.state.columns.kept_casts import cast_to

_NULLS = 'If a column that a row does not name is to be null, say missing="null" where the operator is used.'

_PLAIN: dict[pa.DataType, Any] = {pa.int64(): int, pa.float64(): float, pa.string(): str, pa.bool_(): bool}
"""Types whose values fit without a closer look."""
_LONG = 1 << 63


class OutputForm:
    """The rows of one output port. A dict, a named tuple, a `Row` and a table are read by their names; a plain tuple or
    list by its order. A name that the schema does not have is always a mistake. What it gives back no longer changes,
    whatever becomes of what was given."""

    def __init__(
        self, operator: str, schema: pa.Schema, missing: Missing = "refuse", cure: str = _NULLS
    ) -> None:
        self.schema = schema
        self._operator = operator
        self._names = tuple(schema.names)
        self._known = frozenset(self._names)
        self._fills = missing == "null"
        self._cure = cure
        """What to do where columns are missing."""
        self._plain = [_PLAIN.get(field.type) for field in schema]
        self._keep = row_keeper(schema)

    def row(self, item: Any) -> Sequence[Any]:
        """The values of a row in the order of the schema. TopologyError if it has other columns."""
        values = self._in_order(item)
        return values if self._keep is None else self._keep(values)

    def _in_order(self, item: Any) -> Sequence[Any]:
        if isinstance(item, Mapping):
            if item.keys() != self._known:
                self._check(item, "row")
            return [item.get(name) for name in self._names]
        if not isinstance(item, tuple | list):
            raise TopologyError(
                f"operator {self._operator!r} gave a {type(item).__name__}, which is not a row.",
                cure="Give a dict, a tuple, a named tuple or a pyarrow Table.",
            )
        names = getattr(item, "_fields", None) or getattr(item, "__fields__", None)
        if names and tuple(names) != self._names:
            return self._in_order(dict(zip(names, item, strict=True)))
        if len(item) != len(self._names):
            raise TopologyError(
                f"operator {self._operator!r} gave a row of {len(item)} values, but its schema has "
                f"{len(self._names)} columns: {one_line(self.schema)}.",
                cure="Give one value per column, in their order, or a dict.",
            )
        return item if isinstance(item, tuple) else list(item)

    def rows(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        """Rows that `row` gave, as a table."""
        columns = list(zip(*rows, strict=True)) or [() for _ in self._names]
        try:
            arrays = [column_of(values, field) for values, field in zip(columns, self.schema, strict=True)]
        except Unfit as error:
            raise self._misfit("row", error) from error
        return pa.table(arrays, schema=self.schema)

    def check(self, item: Any) -> None:
        """OperatorFailed if what `row` or `table` gave has a value that does not fit its column."""
        if isinstance(item, pa.Table):
            return
        for value, fits in zip(item, self._plain, strict=True):
            if value is not None and (
                type(value) is not fits or (fits is int and not -_LONG <= value < _LONG)
            ):
                self.rows([item])
                return

    def table(self, item: pa.Table) -> pa.Table:
        """A table with the columns of the schema."""
        if set(item.column_names) != self._known:
            self._check(item.column_names, "table")
            for field in self.schema:
                if field.name not in item.column_names:
                    item = item.append_column(field, pa.nulls(item.num_rows, field.type))
        try:
            return kept_table(cast_to(item, self.schema))
        except Unfit as error:
            raise self._misfit("table", error) from error

    def _check(self, given: Iterable[Any], what: str) -> None:
        """TopologyError if names are unknown, or missing although nobody said that they may be."""
        given = list(given)
        unknown = next((name for name in given if name not in self._known), None)
        missing = [name for name in self._names if name not in given]
        where = f"operator {self._operator!r} gave a {what}"
        if unknown is not None:
            hint = near(unknown, missing or self._names)
            raise TopologyError(
                f"{where} with a column {unknown!r}, which its schema ({one_line(self.schema)}) does not have.{hint}",
                cure="Correct the name, or add the column to the schema.",
            )
        if missing and not self._fills:
            raise TopologyError(
                f"{where} without the column {missing[0]!r} of its schema ({one_line(self.schema)}).",
                cure=self._cure,
            )

    def _misfit(self, what: str, error: Exception) -> OperatorFailed:
        return OperatorFailed(
            f"operator {self._operator!r} submitted a {what} that does not fit its schema "
            f"({one_line(self.schema)}): {error}"
        )


def one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
