"""`Rows`: a list as a source, for tests and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import ConfigError, InputError, StateError
from holdfast.language.connectors import Slice, Source, Stamp
from holdfast.language.schema import to_arrow
from holdfast.sources.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Rows(Source):
    """The given rows (tuples in the schema's order, or dicts), `rows_per_step` at a time.

    Example::

        words = Rows([("to",), ("be",)], "word string")
        words = Rows([{"word": "to"}, {"word": "be"}], "word string")
    """

    def __init__(self, rows: Iterable[Any], schema: pa.Schema | str, rows_per_step: int = 1000) -> None:
        if rows_per_step < 1:
            raise ConfigError(f"a step cannot hold {rows_per_step} rows.", cure="Give at least 1.")
        self._schema = to_arrow(schema, "the schema of the rows")
        self._table = _table(list(rows), self._schema)
        self._step = rows_per_step
        self._next = 0

    def schema(self) -> pa.Schema:
        return self._schema

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

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        table = self._table.slice(piece.start, piece.end - piece.start)
        return table if stamp is None else stamp.put_on(table, piece.start)

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        table = self.read_arrow(piece, stamp)
        return session.createDataFrame(table, spark_schema(table.schema))

    def describe(self) -> str:
        return f"a list of {self._table.num_rows} rows"


def _table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    values = [row if isinstance(row, Mapping) else _named(row, schema) for row in rows]
    try:
        return pa.Table.from_pylist(values, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"a row does not fit the schema: {error}.", cure="Correct the row or the schema."
        ) from error


def _named(row: Sequence[Any], schema: pa.Schema) -> dict[str, Any]:
    if len(row) != len(schema):
        raise InputError(
            f"the row {row!r} has {len(row)} values, not {len(schema)}.", cure="Correct the row."
        )
    return dict(zip(schema.names, row, strict=True))
