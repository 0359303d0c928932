"""`Rows`: a list as a source, for tests and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import ConfigError, InputError, StateError
from holdfast.language.connectors import Lag, Slice, Source, Stamp
from holdfast.language.schema import to_arrow
from holdfast.language.tables import as_table, is_tabular
from holdfast.sources.schemas import spark_frame
from holdfast.sources.small.sizes import if_small
from holdfast.state.columns.from_python import Unfit, column_of, near
from holdfast.state.columns.kept_casts import cast_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Rows(Source):
    """The given rows (tuples in the schema's order, or dicts), `rows_per_step` at a time; or those of a table: Arrow's,
    pandas' or a Spark DataFrame, which needs no schema.

    Example::

        words = hf.Rows([("to",), ("be",)], "word string")
        words = hf.Rows([{"word": "to"}, {"word": "be"}], "word string")
        words = hf.Rows(pandas.DataFrame({"word": ["to", "be"]}))
    """

    def __init__(self, rows: Any, schema: pa.Schema | str | None = None, rows_per_step: int = 1000) -> None:
        if rows_per_step < 1:
            raise ConfigError(f"a step cannot hold {rows_per_step} rows.", cure="Give at least 1.")
        if schema is None and not is_tabular(rows):
            raise ConfigError("rows need a schema.", cure="Write Rows(rows, 'id long, name string').")
        wanted = None if schema is None else to_arrow(schema, "the schema of the rows")
        self._table = _tabular(rows, wanted) if is_tabular(rows) else _table(list(rows), wanted)
        self._schema = self._table.schema
        self._step = rows_per_step
        self._next = 0

    def schema(self) -> pa.Schema:
        return self._schema

    def cut_smaller(self, rows: int) -> None:
        self._step = min(self._step, rows)

    def seek(self, state: Any | None) -> None:
        if state is not None and (not isinstance(state, dict) or not isinstance(state.get("next"), int)):
            raise StateError("the snapshot is not one of a list of rows.", cure="Check the store.")
        self._next = 0 if state is None else state["next"]
        if self._next > self._table.num_rows:
            raise InputError(
                f"the list has {self._table.num_rows} rows but {self._next} were already read.",
                cure="Give the same list again.",
            )

    def next_slice(self) -> Slice | None:
        end = min(self._next + self._step, self._table.num_rows)
        if end == self._next:
            return None
        start, self._next = self._next, end
        return Slice(start, end, end - start)

    def snapshot(self) -> Any:
        return {"next": self._next}

    def lag(self) -> Lag:
        return Lag(rows=self._table.num_rows - self._next)

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        table = self._table.slice(piece.start, piece.end - piece.start)
        return table if stamp is None else stamp.put_on(table, piece.start)

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        table = self.read_arrow(piece, stamp)
        return spark_frame(session, table)

    def read_small(self, piece: Slice, stamp: Stamp | None) -> pa.Table | None:
        return if_small(self.read_arrow(piece, stamp))

    def describe(self) -> str:
        return f"a list of {self._table.num_rows} rows"


def _tabular(rows: Any, schema: pa.Schema | None) -> pa.Table:
    table = as_table(rows, "rows")
    if schema is None:
        return table
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InputError(f"the table has no column {missing[0]!r}.", cure="Correct the table or the schema.")
    try:
        return cast_to(table, schema)
    except Unfit as error:
        raise InputError(
            f"the table does not fit the schema: {error}.", cure="Correct the table or the schema."
        ) from error


def _table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    known = frozenset(schema.names)
    values = [
        _checked(row, known, number) if isinstance(row, Mapping) else _named(row, schema)
        for number, row in enumerate(rows)
    ]
    try:
        columns = [column_of([row.get(field.name) for row in values], field) for field in schema]
    except Unfit as error:
        raise InputError(
            f"row {error.row + 1} does not fit the schema: {error}.", cure="Correct the row or the schema."
        ) from error
    return pa.table(columns, schema=schema)


def _checked(row: Mapping[str, Any], known: frozenset[str], number: int) -> Mapping[str, Any]:
    """A row without columns that the schema does not have. Those that it does not name are null."""
    if row.keys() <= known:
        return row
    unknown = next(name for name in row if name not in known)
    raise InputError(
        f"row {number + 1} has a column {unknown!r}, which the schema does not have.{near(unknown, known)}",
        cure="Correct the name, or add the column to the schema.",
    )


def _named(row: Sequence[Any], schema: pa.Schema) -> dict[str, Any]:
    """A tuple in the schema's order; one with names, if it has the same in another order, by those."""
    if len(row) != len(schema):
        raise InputError(
            f"the row {row!r} has {len(row)} values, not {len(schema)}.", cure="Correct the row."
        )
    own = getattr(row, "_fields", None) or getattr(row, "__fields__", None) or ()
    return dict(zip(own if set(own) == set(schema.names) else schema.names, row, strict=True))
