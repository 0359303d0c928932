"""SQLite as a `Backend`: stages and the ledger are tables of the same file, which driver and executors must share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import ConfigError, DamagedError, HoldfastError, InputError, NoSpaceError, StoreError
from holdfast.sinks.database.address import Address
from holdfast.sinks.database.backend import Backend, Ingest, accept, claimed, refuse_dropped
from holdfast.sinks.database.columns import DELETES, Columns, Wanted
from holdfast.sinks.database.rows import staged_schema, staged_type
from holdfast.sinks.database.statements import (
    LEDGER,
    LEDGER_COLUMNS,
    Entry,
    Move,
    literal,
    names,
    quoted,
    writers_clause,
)

WAIT_S = 60.0
FOLDED = "_f"


def storage_class(kind: pa.DataType) -> str | None:
    """How SQLite holds a value: exact numbers with a point, times and nested values are texts. None: not at all."""
    kind = staged_type(kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind):
        return "BLOB"
    if pa.types.is_string(kind) or pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        return None if pa.types.is_duration(kind) or pa.types.is_interval(kind) else "TEXT"
    return None


def affinity(declared: str) -> str:
    """What SQLite makes of a declared type."""
    upper = declared.upper()
    for marks, name in ((("INT",), "INTEGER"), (("CHAR", "CLOB", "TEXT"), "TEXT"), (("BLOB",), "BLOB")):
        if any(mark in upper for mark in marks):
            return name
    if not upper or upper == "ANY":
        return "BLOB"
    return "REAL" if any(mark in upper for mark in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def takes(kind: pa.DataType, declared: str) -> bool:
    """Whether a column keeps every value as it is: SQLite converts texts that look like numbers, for example."""
    stored, wanted = storage_class(kind), affinity(declared)
    if stored == wanted or wanted == "BLOB":
        return True
    if wanted == "NUMERIC":
        return stored in ("INTEGER", "BLOB") or pa.types.is_temporal(kind)
    return stored == "BLOB"


@contextmanager
def connected(address: Address, table: str, starting: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection for one piece of work; errors in one sentence."""
    try:
        with closing(sqlite3.connect(address.url, timeout=WAIT_S, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise error_of(error, address, table, starting) from error


def all_rows(address: Address, table: str) -> list[dict[str, Any]]:
    """What is in a table, if there is one, in the order in which SQLite has it."""
    if not Path(address.url).exists():
        return []
    with connected(address, table) as connection:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if found is None:
            return []
        rows = connection.execute(f"SELECT * FROM {quoted(table)} ORDER BY rowid")
        names = [column[0] for column in rows.description]
        return [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def error_of(error: sqlite3.Error, address: Address, table: str, starting: bool) -> Exception:
    """What an error of SQLite means."""
    where, text = f"table {table} of {address.shown}", str(error)
    refused: type[HoldfastError] = ConfigError if starting else StoreError
    if "locked" in text and not starting:
        return ConnectionError(f"{address.shown} is locked by somebody else. It is tried again.")
    if "full" in text:
        return NoSpaceError(f"{where}: no space left.", cure="Free some space.")
    if isinstance(error, sqlite3.IntegrityError):
        return InputError(
            f"{where} does not take a row: {text}.",
            cure="Nothing of its epoch was written. Change the constraint or the rows that are in the way, and run again.",
        )
    if "ON CONFLICT clause" in text:
        cure = "Add one, or give the columns of the one it has as key=."
        return refused(f"{where} has no primary key or unique constraint on the key columns.", cure=cure)
    return refused(f"{where}: {text}.", cure="Correct the file, the table or the rights, and run again.")


@dataclass(frozen=True, slots=True)
class SqliteIngest:
    """Fills a stage in one transaction."""

    address: Address
    table: str

    def __call__(self, stage: str, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        marks = ", ".join("?" * len(columns))
        with connected(self.address, self.table) as connection, transaction(connection):
            for batch in batches:
                values = [_values(column) for column in batch.columns]
                connection.executemany(
                    f"INSERT INTO {quoted(stage)} VALUES ({marks})", zip(*values, strict=True)
                )


def _values(column: pa.Array) -> list[Any]:
    """As SQLite takes them."""
    if storage_class(column.type) == "TEXT" and not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    values: list[Any] = (
        pc.cast(column, pa.int64()) if pa.types.is_boolean(column.type) else column
    ).to_pylist()
    return values


class SqliteBackend(Backend):
    """One table of one file."""

    def __init__(self, address: Address, wanted: Wanted, columns: Columns) -> None:
        self.columns, self._wanted, self._address = columns, wanted, address
        self._where = f"table {wanted.table} of {address.shown}"
        self._needed: tuple[str, ...] = ()

    def _connected(self, starting: bool = False) -> Any:
        return connected(self._address, self._wanted.table, starting)

    # --- a run begins ---

    def start(self, entry: Entry | None) -> Entry | None:
        path = Path(self._address.url)
        if not path.exists() and not (self._wanted.create and path.parent.is_dir()):
            raise ConfigError(
                f"there is no {self._address.shown}.",
                cure="Correct the path, or give create=True in a directory that exists.",
            )
        with self._connected(starting=True) as connection:
            if entry is not None:
                entry = replace(entry, target=self._wanted.table.lower())
                if _exists(connection, LEDGER):
                    known = _read(connection, entry)
                    accept(known, entry, self._where)
                    if not _exists(connection, self._wanted.table):
                        refuse_dropped(known, self._where)
            with transaction(connection):
                self._check_table(connection)
                if entry is not None:
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {LEDGER} ({LEDGER_COLUMNS})")
                connection.execute(f"CREATE TABLE __hf_try ({self._stage_columns()})")
                for statement in self.move.apply("__hf_try", [0]):
                    connection.execute(f"EXPLAIN {statement}")
                connection.execute("DROP TABLE __hf_try")
        return entry

    def _check_table(self, connection: sqlite3.Connection) -> None:
        for each in self.columns.data:
            if storage_class(each.type) is None:
                raise ConfigError(
                    f"the column {each.name!r} is {each.type}, which SQLite cannot hold.",
                    cure="Cast or drop it before the sink.",
                )
        if not _exists(connection, self._wanted.table) and self._wanted.create:
            parts = [f"{quoted(each.name)} {storage_class(each.type)}" for each in self.columns.data]
            if self.columns.key:
                parts.append(f"PRIMARY KEY ({names(self.columns.key)})")
            connection.execute(f"CREATE TABLE {quoted(self._wanted.table)} ({', '.join(parts)})")
        found = connection.execute(f"PRAGMA table_info({quoted(self._wanted.table)})").fetchall()
        if not found:
            raise ConfigError(
                f"there is no {self._where}.", cure="Correct the name, make the table, or give create=True."
            )
        declared = {str(row[1]): str(row[2]) for row in found}
        for each in self.columns.data:
            if each.name not in declared:
                raise ConfigError(
                    f"{self._where} has no column {each.name!r}; it has {', '.join(declared)}.",
                    cure="Drop or rename the column before the sink, or add it to the table.",
                )
            if not takes(each.type, declared[each.name]):
                raise ConfigError(
                    f"the column {each.name!r} is {each.type} in the stream and {declared[each.name]} in {self._where}, which "
                    "cannot hold every value unchanged.",
                    cure=f"Cast it before the sink, or make it {storage_class(each.type)} in the table.",
                )
        needed = [str(row[1]) for row in found if row[3] and row[4] is None]
        if missing := [name for name in needed if name not in self.columns.names]:
            raise ConfigError(
                f"{self._where} needs a value for {missing[0]!r}, which the stream has not.",
                cure="Add the column before the sink, or give it a default in the table.",
            )
        self._needed = tuple(needed)

    @property
    def move(self) -> Move:
        table = quoted(self._wanted.table)
        return Move(table, self.columns.names, self.columns.key, self.columns.op is not None)

    # --- stages ---

    def ingest(self) -> Ingest:
        return SqliteIngest(self._address, self._wanted.table)

    def _stage_columns(self) -> str:
        return ", ".join(
            f"{quoted(each.name)} {storage_class(each.type)}" for each in staged_schema(self.columns)
        )

    def make_stage(self, name: str, durable: bool) -> None:
        with self._connected() as connection:
            connection.execute(f"CREATE TABLE {quoted(name)} ({self._stage_columns()})")

    def stages(self, prefix: str) -> list[str]:
        with self._connected() as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return sorted(name for (name,) in found if name.startswith(prefix))

    def drop(self, names: Sequence[str]) -> None:
        with self._connected() as connection:
            for name in names:
                connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")

    # --- an epoch ---

    def settle(self, stage: str, writers: Sequence[int], rows: int) -> str | None:
        with self._connected() as connection, transaction(connection):
            self._check_rows(connection, stage, writers, rows)
            if not self.columns.is_keyed:
                return None
            folded = f"{stage}{FOLDED}"
            connection.execute(f"DROP TABLE IF EXISTS {quoted(folded)}")
            connection.execute(self.move.fold(quoted(stage), quoted(folded), writers))
        return folded

    def _check_rows(
        self, connection: sqlite3.Connection, stage: str, writers: Sequence[int], rows: int
    ) -> None:
        source = f"{quoted(stage)} WHERE {writers_clause(writers)}"
        written = f" AND NOT {quoted(DELETES)}" if self.columns.op is not None else ""
        (counted,) = connection.execute(f"SELECT count(*) FROM {source}").fetchone()
        if counted != rows:
            raise DamagedError(
                f"the staging table {stage} holds {counted} of {rows} rows.", cure="Run again."
            )
        for name in dict.fromkeys((*self.columns.key, *self._needed)):
            only = "" if name in self.columns.key else written
            if connection.execute(
                f"SELECT 1 FROM {source}{only} AND {quoted(name)} IS NULL LIMIT 1"
            ).fetchone():
                raise InputError(
                    f"a row has no value in {name!r}, which {self._where} needs.",
                    cure="Filter such rows before the sink, or fill the column.",
                )

    # --- the ledger ---

    def read_entry(self, entry: Entry) -> Entry | None:
        with self._connected() as connection:
            return _read(connection, entry)

    def note(self, entry: Entry) -> None:
        with self._connected() as connection, transaction(connection):
            found = _read(connection, entry)
            accept(found, entry, self._where)
            connection.execute((entry if entry.epoch else claimed(found, entry)).write(LEDGER))

    def show(self, entry: Entry, staged: str, writers: Sequence[int]) -> None:
        with self._connected() as connection, transaction(connection):
            if not accept(_read(connection, entry), entry, self._where):
                return
            if staged:
                self.refuse_gone(connection, staged)
                self._apply(connection, staged, writers)
            connection.execute(entry.write(LEDGER))

    def refuse_gone(self, connection: sqlite3.Connection, staged: str) -> None:
        if not _exists(connection, staged):
            raise DamagedError(
                f"the staging table {staged} is missing, with rows that {self._where} does not show yet.",
                cure="Nothing was changed. Use the file and the table that this store wrote into, or begin anew with another "
                "table and another store.",
            )

    def show_now(self, staged: str, writers: Sequence[int]) -> None:
        with self._connected() as connection, transaction(connection):
            if self.columns.is_keyed:
                folded = f"{staged}{FOLDED}"
                connection.execute(self.move.fold(quoted(staged), quoted(folded), writers))
                staged = folded
            self._apply(connection, staged, writers)

    def _apply(self, connection: sqlite3.Connection, staged: str, writers: Sequence[int]) -> None:
        for statement in self.move.apply(quoted(staged), writers):
            connection.execute(statement)

    def is_empty(self) -> bool:
        with self._connected() as connection:
            return (
                connection.execute(f"SELECT 1 FROM {quoted(self._wanted.table)} LIMIT 1").fetchone() is None
            )

    def close(self) -> None:
        """Every piece of work has a connection of its own."""


def _exists(connection: sqlite3.Connection, table: str) -> bool:
    query = f"SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND name = {literal(table)} COLLATE NOCASE"
    return connection.execute(query).fetchone() is not None


def _read(connection: sqlite3.Connection, entry: Entry) -> Entry | None:
    found = connection.execute(entry.read(LEDGER)).fetchone()
    if found is None:
        return None
    return replace(entry, job=found[0], region=found[1], epoch=found[2], token=found[3])
