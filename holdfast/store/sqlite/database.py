"""The SQLite file beneath SqliteStore: schema, opening, checking, and one way to read or change it.

Journal mode DELETE: one file when nothing runs, nothing to forget when copying it, and the write-ahead mode had a bug
that could lose pages until 2026, longer than the versions found on most machines. Synchronous EXTRA: the directory is
made durable as well. Every row carries the CRC-32 of its table, its key and its value. Page:
docs/formats/store-sqlite.md.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import DamagedError, StoreError
from holdfast.store import identity_record, refusals, sealed_file
from holdfast.store.base import FORMAT, Identity
from holdfast.store.names import named_crc

APPLICATION_ID = 0x486F6C64
BUSY_TIMEOUT_S = 10.0
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""sqlite3 quotes a damaged schema in its message, and then cannot decode the message."""

SCHEMA = """
CREATE TABLE identity (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE owner    (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE entries  (entry TEXT PRIMARY KEY, crc INTEGER NOT NULL);
CREATE TABLE pairs    (entry TEXT, key TEXT, value BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (entry, key));
CREATE TABLE segments (entry TEXT, key TEXT, value BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (entry, key));
CREATE TABLE chunks   (entry TEXT, key TEXT, number INTEGER, value BLOB NOT NULL, PRIMARY KEY (entry, key, number));
CREATE TABLE epochs   (region TEXT, epoch INTEGER, value BLOB NOT NULL, crc INTEGER NOT NULL,
                       PRIMARY KEY (region, epoch));
CREATE TABLE records  (name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE events   (number INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE mail     (number INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL, crc INTEGER NOT NULL);
"""

_CHECKED = {
    "identity": ("id",), "owner": ("id",), "entries": ("entry",), "pairs": ("entry", "key"),
    "segments": ("entry", "key"), "epochs": ("region", "epoch"), "records": ("name",),
}  # fmt: skip
"""Tables whose rows are all verified before an owner goes on, and their keys."""
_ONE = {
    table: f"SELECT value, crc FROM {table} WHERE {' AND '.join(f'{column} = ?' for column in key)}"
    for table, key in _CHECKED.items()
}


def put(connection: sqlite3.Connection, table: str, *key: object, value: bytes) -> None:
    """Write a row with its checksum, or replace it."""
    row = (*key, value, named_crc(table, *key, value=value))
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


class Database:
    """One connection, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    def create(self, identity: Identity) -> None:
        """Make the file under a temporary name, then give it its real one unless another process was faster."""
        staged = self.path.with_name(f".{self.path.name}.new-{secrets.token_hex(8)}")
        with durable.translate_os_errors(str(self.path)), self.translating():
            durable.make_directory(self.path.parent)
            try:
                os.close(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, durable.FILE_MODE))
                os.chmod(staged, durable.FILE_MODE)
                _fill(staged, identity)
                durable.fsync_file(staged)
                os.link(staged, self.path)
            except FileExistsError:
                pass
            finally:
                durable.remove_quietly(staged)
                durable.remove_quietly(f"{staged}-journal")
            durable.fsync_directory(self.path.parent)

    def exists(self) -> bool:
        """True if the file is there. An empty file is damage: SQLite would quietly begin a new store in it."""
        with sealed_file.opened(self.path) as file:
            if file is not None and os.fstat(file.fileno()).st_size == 0:
                raise sealed_file.damaged(self.path, "is empty")
            return file is not None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self.translating():
            yield self._connected()

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """The connection inside a write transaction: all of it is done, or nothing."""
        with self._lock, self.translating():
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def verify(self) -> None:
        """DamagedError unless every page, index and row is as it was written. Reads the whole file."""
        with self.reading() as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise sealed_file.damaged(self.path, f"is damaged ({found})")
            for table, key in _CHECKED.items():
                value = "''" if table == "entries" else "value"
                for *names, data, crc in connection.execute(
                    f"SELECT {', '.join(key)}, {value}, crc FROM {table}"
                ):
                    self._check(crc, table, *names, value=data or b"")

    def rows(self, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
        """What a query finds. Without the context managers: this is called most."""
        with self._lock:
            try:
                return self._connected().execute(sql, arguments).fetchall()
            except _SQLITE_ERRORS as error:
                raise _translated(self.path, error) from error

    def value(self, table: str, *key: object) -> bytes | None:
        """The verified value of a row; inside of a transaction, as it sees it. None: there is no such row."""
        rows = self.rows(_ONE[table], *key)
        if not rows:
            return None
        value, crc = rows[0]
        self._check(crc, table, *key, value=value)
        return bytes(value)

    def _check(self, crc: int, table: str, *key: object, value: bytes) -> None:
        if not isinstance(value, bytes) or named_crc(table, *key, value=value) != crc:
            name = "/".join(map(str, key))
            raise sealed_file.damaged(
                self.path, f"holds a row that does not match its checksum ({table} {name})"
            )

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            if not self.exists():
                raise refusals.no_store(str(self.path))
            connection = connect(self.path)
            try:
                self._refuse_strange(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _refuse_strange(self, connection: sqlite3.Connection) -> None:
        """Refuse what is not a store of this format, before anything is written."""
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise sealed_file.damaged(self.path, "is not a holdfast store")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        sealed_file.refuse_newer(self.path, str(version))
        if strange := _schema(connection) ^ _ours():
            kind, name, _ = sorted(strange)[0]
            raise sealed_file.damaged(
                self.path, f"does not have the schema of a store ({kind} {name[:60]!r})"
            )
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        if pages * size != self.path.stat().st_size:
            raise sealed_file.damaged(self.path, f"should have {pages * size} bytes")

    @contextmanager
    def translating(self) -> Iterator[None]:
        try:
            yield
        except _SQLITE_ERRORS as error:
            raise _translated(self.path, error) from error


def connect(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    for pragma in ("synchronous=EXTRA", "cell_size_check=ON", "trusted_schema=OFF", "foreign_keys=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _schema(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """(kind, name, definition) of all that a database has. Nothing is evaluated: views and triggers are only text here."""
    found = connection.execute("SELECT type, name, coalesce(sql, tbl_name) FROM sqlite_schema")
    return frozenset((str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in found)


@cache
def _ours() -> frozenset[tuple[str, str, str]]:
    """What a store's database has: a trigger could delete epochs, a view could let whoever reads it wait for ever."""
    connection = connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        return _schema(connection)
    finally:
        connection.close()


def put_identity(connection: sqlite3.Connection, identity: Identity) -> None:
    put(connection, "identity", 1, value=identity_record.encode(identity))


def _fill(path: Path, identity: Identity) -> None:
    connection = connect(path)
    try:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        connection.executescript("BEGIN;" + SCHEMA + "COMMIT;")
        put_identity(connection, identity)
    finally:
        connection.close()


def _translated(path: Path, error: Exception) -> StoreError:
    if isinstance(error, UnicodeDecodeError):
        return sealed_file.damaged(path, "is damaged: its schema is no text")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return durable.no_space(f"writing {path}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"{path} is locked by another process for more than {BUSY_TIMEOUT_S:.0f} s.",
            cure="If that process is stopped, end it.",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(
            f"{path} cannot be written: {error}.", cure="Check the permissions of file and directory."
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"reading or writing {path} failed: {error}.", cure="Check the disk, then start again."
        )
    if isinstance(error, sqlite3.DatabaseError):
        return DamagedError(f"{path} is damaged: {error}.", cure=sealed_file.RESTORE)
    return StoreError(f"{path}: {error}.")
