"""Rows as driver-hosted Python operators see them: tuples with names, close to PySpark's Row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import StepFailed, TopologyError
from holdfast.language.connectors import POSITION_FIELDS


class Row(tuple[Any, ...]):
    """One row: `row.word`, `row["word"]`, `row[0]`, `row.asDict()`."""

    _fields: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return self._fields

    def asDict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[self._fields.index(name)]
        except ValueError:
            raise AttributeError(
                f"this row has no column {name!r}; it has {', '.join(self._fields)}"
            ) from None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return super().__getitem__(self._fields.index(key))
            except ValueError:
                raise KeyError(f"this row has no column {key!r}; it has {', '.join(self._fields)}") from None
        return super().__getitem__(key)

    def __repr__(self) -> str:
        return "Row(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True)) + ")"


def rows_of(table: pa.Table) -> Iterator[Row]:
    """The table's rows, one by one."""
    cls = type("Row", (Row,), {"_fields": tuple(table.column_names), "__slots__": ()})
    columns = [column.to_pylist() for column in table.columns]
    return (cls(values) for values in zip(*columns, strict=True))


class Outbox:
    """Collects what a hosted operator submits, per output port, and turns it into stamped tables."""

    def __init__(self, operator: str, schemas: Sequence[pa.Schema]) -> None:
        self._operator = operator
        self._schemas = schemas
        self._pending: list[list[pa.Table]] = [[] for _ in schemas]
        self._rows: list[list[Any]] = [[] for _ in schemas]
        self.closed_by: str | None = None
        """What is being processed, if nothing may be submitted because of it."""

    def submit(self, item: Any, port: int = 0) -> None:
        """A row (tuple, list, mapping), a table or a record batch."""
        if self.closed_by is not None:
            raise TopologyError(
                f"operator {self._operator!r} submitted a row while it processed {self.closed_by}.",
                cure="Rows of control ports change state only: submit when the next row of a data port comes.",
            )
        if not 0 <= port < len(self._schemas):
            raise StepFailed(
                f"operator {self._operator!r} submitted to port {port}, but has {len(self._schemas)} output ports."
            )
        if isinstance(item, pa.RecordBatch):
            item = pa.Table.from_batches([item])
        if isinstance(item, pa.Table):
            self._flush(port)
            self._pending[port].append(item.select(self._schemas[port].names).cast(self._schemas[port]))
        else:
            self._rows[port].append(item)

    def submit_all(self, result: Any) -> None:
        """What `process` returned: nothing, one row, a table, or an iterable of rows (a generator, a list)."""
        if result is None:
            return
        if isinstance(result, (tuple, Mapping, pa.Table, pa.RecordBatch)):
            self.submit(result)
        elif isinstance(result, Iterable) and not isinstance(result, (str, bytes)):
            for item in result:
                self.submit(item)
        else:
            raise StepFailed(
                f"operator {self._operator!r} returned a {type(result).__name__}, which is not a row.",
                cure="Return a tuple, a dict, a pyarrow Table, or an iterable of rows.",
            )

    def take(self) -> list[pa.Table]:
        """One table per port; empties the outbox."""
        tables: list[pa.Table] = []
        for port, schema in enumerate(self._schemas):
            self._flush(port)
            pending, self._pending[port] = self._pending[port], []
            tables.append(pa.concat_tables(pending) if pending else schema.empty_table())
        return tables

    def _flush(self, port: int) -> None:
        rows, self._rows[port] = self._rows[port], []
        if not rows:
            return
        schema = self._schemas[port]
        try:
            self._pending[port].append(_table(rows, schema))
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise StepFailed(
                f"operator {self._operator!r} submitted a row that does not fit its schema ({_one_line(schema)}): {error}"
            ) from error


def _table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    names = schema.names
    if all(isinstance(row, Mapping) for row in rows):
        columns: list[list[Any]] = [[row.get(name) for row in rows] for name in names]
    else:
        plain = [tuple(row.get(n) for n in names) if isinstance(row, Mapping) else row for row in rows]
        if any(len(row) != len(names) for row in plain):
            raise ValueError(f"a row has {next(len(r) for r in plain if len(r) != len(names))} values")
        columns = [list(column) for column in zip(*plain, strict=True)]
    return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def stamp(table: pa.Table, source_index: int, first: int) -> pa.Table:
    """Append position columns: rows numbered from `first`."""
    count = table.num_rows
    columns = [
        pa.array([source_index] * count, pa.int32()),
        pa.array([0] * count, pa.int64()),
        pa.array(range(first, first + count), pa.int64()),
    ]
    for field, column in zip(POSITION_FIELDS, columns, strict=True):
        table = table.append_column(field, column)
    return table


def _one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
