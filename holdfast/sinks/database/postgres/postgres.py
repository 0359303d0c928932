"""PostgreSQL as a `Backend`.

Stages are plain tables beside the ledger, filled by COPY without waiting for the disk. The transaction of `settle` does wait:
behind it lie all those before it in the server's log, so one wait makes a whole epoch durable. Stages of regions are logged
tables, for a crash of the server empties unlogged ones, and a published epoch must outlive it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import ConfigError, DamagedError, InputError, StoreError
from holdfast.sinks.database.address import Address
from holdfast.sinks.database.backend import Backend, Ingest, accept, claimed, refuse_dropped
from holdfast.sinks.database.columns import DELETES, Columns, Wanted
from holdfast.sinks.database.postgres import table as tables
from holdfast.sinks.database.postgres.connections import Connection, Connections, PostgresIngest, one_of
from holdfast.sinks.database.postgres.types import Fit, staging_type
from holdfast.sinks.database.rows import staged_schema
from holdfast.sinks.database.statements import (
    LEDGER,
    LEDGER_COLUMNS,
    Entry,
    Move,
    literal,
    quoted,
    writers_clause,
)

logger = logging.getLogger("holdfast.sinks")
FOLDED = "_f"
CHECK = '"__hf_check"'


class PostgresBackend(Backend):
    """One table of one database."""

    def __init__(self, address: Address, wanted: Wanted, columns: Columns, staging: str | None) -> None:
        self.columns, self._wanted, self._address = columns, wanted, address
        self._connections = Connections(address, wanted.table)
        self._where = f"table {wanted.table} of {address.shown}"
        self._staging = staging
        self._schema = ""
        self._found: tables.Found | None = None
        self._fits: dict[str, Fit] = {}

    # --- a run begins ---

    def start(self, entry: Entry | None) -> Entry | None:
        self._check_types()
        with self._connections.use(starting=True) as connection:
            found = tables.find(connection, self._wanted.table)
            schema = found.schema if found is not None else self._schema_to_be(connection)
            self._schema = self._staging or schema
            if entry is not None:
                entry = replace(entry, target=f"{schema}.{tables.split_name(self._wanted.table)[1]}")
                if tables.find(connection, f"{self._schema}.{LEDGER}") is not None:
                    known = self._read(connection, entry)
                    accept(known, entry, self._where)
                    if found is None:
                        refuse_dropped(known, self._where)
            self._use(connection, found)
            if entry is not None:
                self._make_ledger(connection)
            self._try_statements(connection)
        return entry

    def _check_types(self) -> None:
        for each in self.columns.data:
            if staging_type(each.type) is None:
                raise ConfigError(
                    f"the column {each.name!r} is {each.type}, which PostgreSQL has no type for.",
                    cure="Cast or drop it before the sink.",
                )

    def _schema_to_be(self, connection: Connection) -> str:
        """Where the table would be made."""
        schema = tables.split_name(self._wanted.table)[0] or tables.current_schema(connection)
        if schema is None:
            raise ConfigError(
                f"{self._where}: the search path of this user has no schema.", cure="Write 'schema.table'."
            )
        return schema

    def _use(self, connection: Connection, found: tables.Found | None) -> None:
        """Take the table, made if there is none and that was asked for, if the columns fit."""
        if found is None and self._wanted.create:
            schema, name = tables.split_name(self._wanted.table)
            relation = quoted(name) if schema is None else f"{quoted(schema)}.{quoted(name)}"
            connection.execute(tables.create_statement(relation, self.columns))
            found = tables.find(connection, self._wanted.table)
        if found is None:
            raise ConfigError(
                f"there is no {self._where}.", cure="Correct the name, make the table, or give create=True."
            )
        self._fits = tables.fits_of(found, self.columns, self._where)
        self._found = found
        if others := tables.others_unique(found, self.columns.key):
            logger.warning(
                "%s: a row that repeats a value of %s ends the run", self._where, ", ".join(others)
            )

    def _make_ledger(self, connection: Connection) -> None:
        # Looked for first: CREATE TABLE IF NOT EXISTS asks for the right to create even if there is nothing to do.
        if tables.find(connection, f"{self._schema}.{LEDGER}") is None:
            with connection.transaction():
                connection.execute(f"SELECT pg_advisory_xact_lock(hashtext({literal(LEDGER)}))")
                connection.execute(f"CREATE TABLE IF NOT EXISTS {self._relation(LEDGER)} ({LEDGER_COLUMNS})")

    def _try_statements(self, connection: Connection) -> None:
        """Make the server plan what `show` will do: it refuses wrong names, types, keys and missing rights. Rolled back."""
        stage = self._relation(f"__hf_try_{secrets.token_hex(4)}")
        with connection.rolled_back():
            connection.execute(f"CREATE TABLE {stage} ({self._stage_columns()})")
            for statement in self.move.apply(stage, [0]):
                connection.execute(f"EXPLAIN {statement}")
            self._try_values(connection, stage)

    @property
    def move(self) -> Move:
        assert self._found is not None, "start() comes first"
        casts = {name: self._found.columns[name].full for name, how in self._fits.items() if how == "cast"}
        return Move(
            self._found.relation, self.columns.names, self.columns.key, self.columns.op is not None, casts
        )

    def _relation(self, name: str) -> str:
        return f"{quoted(self._schema)}.{quoted(name)}"

    # --- stages ---

    def ingest(self) -> Ingest:
        return PostgresIngest(self._connections, self._schema)

    def _stage_columns(self) -> str:
        return ", ".join(
            f"{quoted(each.name)} {staging_type(each.type)}" for each in staged_schema(self.columns)
        )

    def make_stage(self, name: str, durable: bool) -> None:
        kind = "TABLE" if durable else "UNLOGGED TABLE"
        with self._connections.use() as connection, connection.transaction("synchronous_commit = off"):
            connection.execute(
                f"CREATE {kind} {self._relation(name)} ({self._stage_columns()}) WITH (autovacuum_enabled = off)"
            )

    def stages(self, prefix: str) -> list[str]:
        with self._connections.use() as connection:
            found = connection.rows(
                "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' "
                f"AND n.nspname = {literal(self._schema)} AND starts_with(c.relname::text, {literal(prefix)})"
            )
        return sorted(str(row[0]) for row in found)

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                with self._connections.use() as connection:
                    # A task that nobody waits for may still fill it: then a later run removes it.
                    with connection.transaction("lock_timeout = '2s'", "synchronous_commit = off"):
                        connection.execute(f"DROP TABLE IF EXISTS {self._relation(name)}")
            except (OSError, StoreError) as error:
                logger.debug("%s is left for a later run: %s", name, error)

    # --- an epoch ---

    def settle(self, stage: str, writers: Sequence[int], rows: int) -> str | None:
        with self._connections.use() as connection, connection.transaction("synchronous_commit = on"):
            self._refuse_lost(connection, stage)
            self._check_rows(connection, stage, writers, rows)
            folded = None
            if self.columns.is_keyed:
                folded = f"{stage}{FOLDED}"
                connection.execute(f"DROP TABLE IF EXISTS {self._relation(folded)}")
                connection.execute(self.move.fold(self._relation(stage), self._relation(folded), writers))
            else:
                connection.execute(f"COMMENT ON TABLE {self._relation(stage)} IS {literal(f'{rows} rows')}")
        return folded

    def _refuse_lost(self, connection: Connection, stage: str) -> None:
        if tables.find(connection, f"{self._schema}.{stage}") is None:
            raise ConnectionError(
                f"the staging table {stage} is gone: {self._address.shown} crashed since it was filled, or somebody removed it."
            )

    def _check_rows(self, connection: Connection, stage: str, writers: Sequence[int], rows: int) -> None:
        """InputError if the table would not take a row: now the epoch can still be withdrawn."""
        assert self._found is not None
        source = f"{self._relation(stage)} WHERE {writers_clause(writers)}"
        written = f" AND NOT {quoted(DELETES)}" if self.columns.op is not None else ""
        needed = [
            name
            for name in self.columns.names
            if name in self.columns.key or self._found.columns[name].is_needed
        ]
        wishes = [
            f"bool_or({quoted(n)} IS NULL{written if n not in self.columns.key else ''})" for n in needed
        ]
        counted = one_of(connection.rows(f"SELECT {', '.join(['count(*)', *wishes])} FROM {source}"))
        assert counted is not None
        if counted[0] != rows:
            raise ConnectionError(f"the staging table {stage} holds {counted[0]} of {rows} rows.")
        for name, is_null in zip(needed, counted[1:], strict=True):
            if is_null:
                raise InputError(
                    f"a row has no value in {name!r}, which {self._where} needs.",
                    cure="Filter such rows before the sink, or fill the column.",
                )
        self._try_values(connection, f"{source}{written}")

    def _try_values(self, connection: Connection, source: str) -> None:
        """Put values that may not fit into a table of the same types, thrown away: the server itself says whether they do."""
        assert self._found is not None
        risky = [name for name, how in self._fits.items() if how != "same"]
        if risky:
            listed = ", ".join(map(quoted, risky))
            connection.execute(
                f"CREATE TEMP TABLE {CHECK} ON COMMIT DROP AS SELECT {listed} FROM {self._found.relation} WHERE false"
            )
            connection.execute(
                f"INSERT INTO {CHECK} ({listed}) SELECT {self.move.selected(risky)} FROM {source}"
            )

    # --- the ledger ---

    def read_entry(self, entry: Entry) -> Entry | None:
        with self._connections.use() as connection:
            return self._read(connection, entry)

    def _read(self, connection: Connection, entry: Entry, lock: str = "") -> Entry | None:
        found = one_of(connection.rows(f"{entry.read(self._relation(LEDGER))}{lock}"))
        if found is None:
            return None
        return Entry(
            entry.topology, entry.sink, entry.target, str(found[0]), str(found[1]), *map(int, found[2:])
        )

    def note(self, entry: Entry) -> None:
        with self._connections.use() as connection, connection.transaction():
            # First the row, so that there is one to lock: a commit of an older owner waits for it, or is waited for.
            connection.execute(replace(entry, epoch=0).write_new(self._relation(LEDGER)))
            found = self._read(connection, entry, " FOR UPDATE")
            accept(found, entry, self._where)
            kept = entry if entry.epoch else claimed(found, entry)
            connection.execute(kept.write(self._relation(LEDGER)))

    def show(self, entry: Entry, staged: str, writers: Sequence[int]) -> None:
        with self._connections.use() as connection, connection.transaction("synchronous_commit = on"):
            found = self._read(connection, entry, " FOR UPDATE")
            if not accept(found, entry, self._where):
                return
            if staged:
                self._refuse_gone(connection, staged)
                for statement in self.move.apply(self._relation(staged), writers):
                    connection.execute(statement)
            connection.execute(entry.write(self._relation(LEDGER)))

    def _refuse_gone(self, connection: Connection, staged: str) -> None:
        if tables.find(connection, f"{self._schema}.{staged}") is None:
            raise DamagedError(
                f"the staging table {self._schema}.{staged} is missing, with rows that {self._where} does not show yet.",
                cure="Nothing was changed. Use the database and the table that this store wrote into, or begin anew with "
                "another table and another store.",
            )

    def show_now(self, staged: str, writers: Sequence[int]) -> None:
        with self._connections.use() as connection, connection.transaction():
            if self.columns.is_keyed:
                folded = f"{staged}{FOLDED}"
                connection.execute(self.move.fold(self._relation(staged), self._relation(folded), writers))
                staged = folded
            for statement in self.move.apply(self._relation(staged), writers):
                connection.execute(statement)

    def is_empty(self) -> bool:
        assert self._found is not None, "start() comes first"
        with self._connections.use() as connection:
            return not connection.rows(f"SELECT 1 FROM {self._found.relation} LIMIT 1")

    def close(self) -> None:
        self._connections.close()
