"""Connections to PostgreSQL, kept per process: a task of the next step finds the one that the last step's task used.

The driver (ADBC) sends Arrow batches as binary COPY. It is an extra of holdfast and imported here only.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import ConfigError, HoldfastError
from holdfast.sinks.database.address import Address
from holdfast.sinks.database.postgres.faults import Fault, error_of

IDLE_MAX = 2
"""Connections that wait for work, per process and database."""
_OPTIONS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "60000",
    "application_name": "holdfast",
}
_SETTINGS = ("SET lock_timeout = '60s'", "SET client_min_messages = 'error'", "SET default_transaction_isolation = 'read committed'")  # fmt: skip
_NO_COPY = {"adbc.postgresql.use_copy": "false"}

_idle: dict[tuple[int, str], list[Connection]] = defaultdict(list)
_lock = threading.Lock()


def driver() -> Any:
    """The driver's module; ConfigError that says what to install."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs a driver that is not installed.",
            cure="Install it: pip install 'holdfast[postgres]'.",
        ) from None
    return dbapi


class Connection:
    """One connection. Statements commit by themselves unless they are in a `transaction`."""

    def __init__(self, address: Address) -> None:
        missing = [f"{name}={value}" for name, value in _OPTIONS.items() if f"{name}=" not in address.url]
        url = f"{address.url}{'&' if '?' in address.url else '?'}{'&'.join(missing)}"
        self._raw = driver().connect(url, autocommit=True)
        for setting in _SETTINGS:
            self.execute(setting)

    def execute(self, statement: str) -> int:
        """Rows that were changed; -1 if there are none to be counted."""
        with self._raw.cursor() as cursor:
            cursor.adbc_statement.set_options(**_NO_COPY)
            cursor.execute(statement)
            return int(cursor.rowcount)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._raw.cursor() as cursor:
            cursor.adbc_statement.set_options(**_NO_COPY)
            cursor.execute(query)
            return list(cursor.fetchall())

    def ingest(self, schema: str, table: str, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        with self._raw.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(columns, batches)
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)

    @contextmanager
    def transaction(self, *settings: str) -> Iterator[None]:
        """All or nothing. What an error in the last statement means nobody knows: ask the ledger."""
        self.execute("BEGIN")
        try:
            for setting in settings:
                self.execute(f"SET LOCAL {setting}")
            yield
        except BaseException:
            with suppress(Exception):
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Whatever is done leaves nothing behind."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(Exception):  # a connection that is gone has rolled back
                self.execute("ROLLBACK")

    def answers(self) -> bool:
        try:
            return bool(self.rows("SELECT 1"))
        except Exception:
            return False

    def close(self) -> None:
        with suppress(Exception):
            self._raw.close()


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to one database, in whatever process. `table`: for sentences."""

    address: Address
    table: str

    @contextmanager
    def use(self, starting: bool = False) -> Iterator[Connection]:
        """A connection that answers; after a failure it is closed. Errors are told in one sentence, without passwords."""
        connection: Connection | None = None
        try:
            connection = self._take()
            yield connection
        except Exception as error:
            if connection is not None:
                connection.close()
            if isinstance(error, HoldfastError) or not _is_drivers(error):
                raise
            # Not chained: the driver's own text holds statements, and what else it may hold nobody knows.
            raise error_of(Fault.of(error, self.address), self.address, self.table, starting) from None
        else:
            self._give_back(connection)

    def _take(self) -> Connection:
        while True:
            with _lock:
                waiting = _idle[os.getpid(), self.address.url]
                connection = waiting.pop() if waiting else None
            if connection is None:
                return Connection(self.address)
            if connection.answers():
                return connection
            connection.close()  # the server was restarted since

    def _give_back(self, connection: Connection) -> None:
        with _lock:
            waiting = _idle[os.getpid(), self.address.url]
            if len(waiting) < IDLE_MAX:
                waiting.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close what waits in this process."""
        with _lock:
            waiting = _idle.pop((os.getpid(), self.address.url), [])
        for connection in waiting:
            connection.close()


@atexit.register
def _close_all() -> None:
    """The driver complains of connections that outlive the interpreter."""
    for (process, _), waiting in list(_idle.items()):
        for connection in waiting if process == os.getpid() else ():
            connection.close()


def _is_drivers(error: Exception) -> bool:
    return type(error).__module__.startswith("adbc_driver")


@dataclass(frozen=True, slots=True)
class PostgresIngest:
    """Fills a stage in one transaction, by COPY. It need not be durable yet: `settle` sees to that."""

    connections: Connections
    schema: str

    def __call__(self, stage: str, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        failed: list[Exception] = []

        def guarded() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:  # the driver would make a text of it
                failed.append(error)
                raise

        try:
            with self.connections.use() as connection, connection.transaction("synchronous_commit = off"):
                connection.ingest(self.schema, stage, columns, guarded())
        except Exception:
            if failed:
                raise failed[0] from None
            raise


def one_of(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    return rows[0] if rows else None
