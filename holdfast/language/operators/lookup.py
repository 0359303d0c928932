"""Rows with what a table at hand knows about their key: `orders.lookup(customers, "customer")`.

The table is data, not a stream: read when the topology is compiled, and again between two steps when it is older than
`refresh`, by the clock of the driver. No state: a replay after a failure may see a newer table than the rows did before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.clock import Clock, SystemClock
from holdfast.durations import Duration, seconds
from holdfast.errors import InputError, TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import key_fields, key_names
from holdfast.language.tables import as_table, is_tabular

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

T = TypeVar("T")

HOWS = ("left", "inner")
_CURE = "Give an Arrow table, a pandas or Spark DataFrame, or a function without arguments that makes one."


class LookupTable:
    """The table as it is now. Used by one element's loop, and by the compiler before."""

    def __init__(self, data: Any, refresh_s: float | None, clock: Clock) -> None:
        self._data = data
        self._refresh_s = refresh_s
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._table: pa.Table | None = None
        self._made: tuple[Any, Any] | None = None

    def now(self) -> pa.Table:
        """Read again if it is too old. It keeps the columns it had first: InputError if it cannot."""
        with self._lock:
            age = self._clock.monotonic() - self._read_at
            if self._table is None or (self._refresh_s is not None and age >= self._refresh_s):
                self._table, self._made = self._read(self._table), None
                self._read_at = self._clock.monotonic()
            return self._table

    def made(self, owner: Any, make: Callable[[pa.Table], T]) -> T:
        """What was made of the present table for an owner; made once for both."""
        table = self.now()
        with self._lock:
            if self._made is None or self._made[0] is not owner:
                self._made = owner, make(table)
            found: T = self._made[1]
            return found

    def _read(self, before: pa.Table | None) -> pa.Table:
        data = self._data() if callable(self._data) and not is_tabular(self._data) else self._data
        table = as_table(data, "the table of lookup()")
        if before is None:
            return table
        try:
            return table.select(before.column_names).cast(before.schema)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"the table of lookup() no longer has the columns it had: {error}.",
                cure="Keep names and types, or start the job again.",
            ) from error


@dataclass(frozen=True, slots=True)
class LookupSpec(Spec):
    """The row of a table with the same key beside each row. `keys`: of the table."""

    by: tuple[str, ...]
    keys: tuple[str, ...]
    how: Literal["left", "inner"]
    suffix: str
    refresh_s: float | None
    table: LookupTable = field(compare=False)


def lookup_spec(
    data: Any, by: Any, refresh: Duration | None, how: str, suffix: str, clock: Clock | None = None
) -> LookupSpec:
    """The spec; refuses what can be refused without knowing the columns."""
    if how not in HOWS:
        raise TopologyError(f"how={how!r} is not known.", cure="Use 'left' or 'inner'.")
    if not is_tabular(data) and not callable(data):
        raise TopologyError(f"lookup() cannot use a {type(data).__name__}.", cure=_CURE)
    refresh_s = None if refresh is None else seconds(refresh, "refresh")
    if refresh_s is not None and is_tabular(data) and not callable(getattr(data, "toArrow", None)):
        raise TopologyError(
            "refresh= does not go with a table that does not change.",
            cure="Give a function that reads it: lookup(lambda: pandas.read_csv('k.csv'), 'k', refresh='10 minutes').",
        )
    cure = "Name the key columns: lookup(table, 'customer'), or {'customer': 'id'} if the table calls them otherwise."
    given = dict(by) if isinstance(by, Mapping) else {name: name for name in key_names(by, "lookup()", cure)}
    mine = key_names(list(given), "lookup()", cure)
    theirs = key_names(list(given.values()), "lookup()", cure)
    table = LookupTable(data, refresh_s, clock or SystemClock())
    return LookupSpec(mine, theirs, "inner" if how == "inner" else "left", suffix, refresh_s, table)


def lookup_names(schema: pa.Schema, spec: LookupSpec, table: pa.Schema) -> dict[str, str]:
    """The columns of the table that come out, and what they are called there."""
    names: dict[str, str] = {}
    for name in (name for name in table.names if name not in spec.keys):
        called = name if name not in schema.names else f"{name}{spec.suffix}"
        if called in schema.names or called in names.values():
            raise TopologyError(
                f"There would be two columns called {called!r}.", cure="Rename one before, or give suffix=."
            )
        names[name] = called
    return names


def lookup_schema(schema: pa.Schema, spec: LookupSpec) -> pa.Schema:
    """Columns that come out: those of the stream, then those of the table without its keys, which may be null."""
    table = spec.table.now()
    keys = key_fields(schema, spec.by)
    for mine, theirs in zip(keys, key_fields(table.schema, spec.keys), strict=True):
        if pa.types.is_floating(mine.type):
            raise TopologyError(
                f"Rows cannot be looked up by {mine.name!r} of type {mine.type}.",
                cure="Use a string, an integer, a decimal, a date or a timestamp.",
            )
        _cast(table.column(theirs.name), theirs.name, mine.type)
    right_rows(schema, spec, table)
    names = lookup_names(schema, spec, table.schema)
    added = [pa.field(called, table.schema.field(name).type) for name, called in names.items()]
    return pa.schema([*schema, *added])


def right_rows(schema: pa.Schema, spec: LookupSpec, table: pa.Table) -> pa.Table:
    """The table as it meets rows: keys of the stream's types, called as there, without nulls; each key once."""
    named = zip(spec.by, spec.keys, strict=True)
    keys = [_cast(table.column(theirs), theirs, schema.field(mine).type) for mine, theirs in named]
    names = lookup_names(schema, spec, table.schema)
    columns = [*keys, *(table.column(name) for name in names)]
    rows = pa.table(columns, names=[*spec.by, *names.values()])
    for name in spec.by:
        rows = rows.filter(pc.is_valid(rows.column(name)))
    if rows.group_by(list(spec.by)).aggregate([]).num_rows < rows.num_rows:
        raise InputError(
            f"the table of lookup() has several rows with the same {', '.join(spec.keys)}.",
            cure="Leave one row per key in it.",
        )
    return rows


def _cast(column: pa.ChunkedArray, name: str, type_: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TopologyError(
            f"The key {name!r} of the table is of type {column.type}, which does not become {type_}: {error}.",
            cure="Give both the same type.",
        ) from error


class LookupVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def lookup(
        self,
        table: Any,
        by: str | Sequence[str] | Mapping[str, str],
        *,
        refresh: Duration | None = None,
        how: Literal["left", "inner"] = "left",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Each row with the row of a table that has its key: `orders.lookup(customers, "customer")`; with
        `by={"customer": "id"}` the table calls the key otherwise. The table is an Arrow table, a pandas or Spark
        DataFrame, or a function that makes one; it has each key once and fits into the driver. Rows that find nothing have
        nulls, or are left out with `how="inner"`. Rows keep their positions.

        `refresh="10 minutes"`: before a step the table is read again if it is older than that, by the driver's clock. There
        is no state: after a failure rows that are replayed may meet a newer table. A Spark DataFrame over files knows the
        files it was made of; give a function to see new ones."""
        return self._then(lookup_spec(table, by, refresh, how, suffix), name)
