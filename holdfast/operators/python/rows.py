"""Rows as Python operators see them, tuples with names, close to PySpark's Row; and what they give."""

from __future__ import annotations

import copy
import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.connectors import POSITION_FIELDS
from holdfast.language.hosted import ERRORS, Missing
from holdfast.operators.python.output_rows import OutputForm


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
    """Collects what a Python operator submits, per output port, and turns it into tables."""

    def __init__(
        self,
        operator: str,
        schemas: Sequence[pa.Schema],
        missing: Missing = "refuse",
        names: Sequence[str] = (),
    ) -> None:
        self._operator = operator
        self._ports: dict[int | str, int] = {port: port for port in range(len(schemas))}
        self._ports.update({name: port for port, name in enumerate(names)})
        self._forms = [OutputForm(operator, schema, missing) for schema in schemas]
        self._items: list[list[Any]] = [[] for _ in schemas]
        """Rows as `OutputForm.row` gives them, and tables, in their order."""
        self.failed: list[tuple[Any, ...]] = []
        """Rows of the stream of errors."""
        self.failed_at: list[Any] = []
        """What `where` was for each of them."""
        self.where: Any = None
        """Where in the input is what is being processed, if somebody wants to know."""
        self._given = [0] * len(self._forms)
        self.came: list[tuple[tuple[int, ...], int]] = []
        """Watermarks that were reached, with how many rows of each port there were then."""
        self.closed_by: str | None = None
        """What is being processed, if nothing may be submitted because of it."""

    def submit(self, item: Any, port: int | str = 0) -> int:
        """A row (dict, tuple, or a list of values), several rows (dicts or tuples) in a list, a table or a record batch; returns how
        many rows that is."""
        if self.closed_by is not None:
            raise TopologyError(
                f"operator {self._operator!r} submitted a row while it processed {self.closed_by}.",
                cure="Rows of control ports change state only: submit when the next row of a data port comes.",
            )
        number = self.number_of(port)
        form, items = self._forms[number], self._items[number]
        if isinstance(item, pa.RecordBatch):
            item = pa.Table.from_batches([item])
        if isinstance(item, pa.Table):
            items.append(form.table(item))
            count = int(item.num_rows)
        elif isinstance(item, list) and all(isinstance(each, Mapping | tuple) for each in item):
            items.extend([form.row(each) for each in item])
            count = len(item)
        else:
            items.append(form.row(item))
            count = 1
        self._given[number] += count
        return count

    def number_of(self, port: int | str) -> int:
        """An output port, given as its number or its name."""
        number = self._ports.get(port)
        if number is None:
            near = difflib.get_close_matches(str(port), [str(each) for each in self._ports], 1)
            raise TopologyError(
                f"operator {self._operator!r} submitted to port {port!r}, but has "
                f"{', '.join(map(repr, self._ports)) or 'no output ports'}.",
                cure=f"Did you mean {near[0]!r}?" if near else "Give it a schema where the operator is used.",
            )
        return number

    def time_came(self, mark: int) -> None:
        """Event time has come to this watermark: what is submitted from now on is behind it."""
        self.came.append((tuple(self._given), mark))

    def take_times(self) -> list[list[tuple[int, int]]]:
        """For each port the watermarks that were reached, and how many rows there were then. Before `take`."""
        came, self.came = self.came, []
        return [[(given[port], mark) for given, mark in came] for port in range(len(self._forms))]

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
            raise TopologyError(
                f"operator {self._operator!r} returned a {type(result).__name__}, which is not a row.",
                cure="Return a tuple, a dict, a pyarrow Table, or an iterable of rows.",
            )

    def take(self) -> list[pa.Table]:
        """One table per port; empties the outbox."""
        tables = [
            pa.concat_tables([form.schema.empty_table(), *_tables(form, items)])
            for form, items in zip(self._forms, self._items, strict=True)
        ]
        self._items = [[] for _ in self._forms]
        self._given = [0] * len(self._forms)
        return tables

    def take_failed(self) -> pa.Table:
        """The rows of the stream of errors."""
        failed, self.failed, self.failed_at = self.failed, [], []
        return OutputForm(self._operator, ERRORS).rows(failed)

    # --- back to before a row that failed ---

    def mark(self) -> Any:
        """What there is by now, for `check` and `back_to`."""
        return tuple(map(len, self._items)), tuple(self._given)

    def copied_at(self, mark: Any) -> Outbox:
        """Another one, with what there was then."""
        made = copy.copy(self)
        made._items = [items[:end] for items, end in zip(self._items, mark[0], strict=True)]
        made._given = list(mark[1])
        made.failed, made.failed_at, made.came = list(self.failed), list(self.failed_at), list(self.came)
        return made

    def check(self, mark: Any) -> None:
        """Refuse what does not fit its schema among what came since."""
        for form, items, begin in zip(self._forms, self._items, mark[0], strict=True):
            for item in items[begin:]:
                form.check(item)

    def back_to(self, mark: Any) -> None:
        """Forget what came since."""
        for items, begin in zip(self._items, mark[0], strict=True):
            del items[begin:]
        self._given = list(mark[1])


def _tables(form: OutputForm, items: Sequence[Any]) -> Iterator[pa.Table]:
    """Tables as they are, and those of the rows between them."""
    for is_table, these in itertools.groupby(items, lambda item: isinstance(item, pa.Table)):
        if is_table:
            yield from these
        else:
            yield form.rows(list(these))


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
