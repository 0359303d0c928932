"""`ForeachBatch.in_transaction`: the user's function writes into any database, and its rows and the epoch's number are in one
transaction. What `DatabaseSink` does by itself for the databases it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Literal

from holdfast.errors import ConfigError, FencedError
from holdfast.ids import Epoch, is_safe_name
from holdfast.language.connectors import SinkContext
from holdfast.sinks.database.backend import accept
from holdfast.sinks.database.statements import Entry, literal
from holdfast.sinks.foreach_batch import ForeachBatch

COLUMNS = "topology varchar(200) NOT NULL, sink varchar(200) NOT NULL, job varchar(64) NOT NULL, epoch bigint NOT NULL, token bigint NOT NULL, PRIMARY KEY (topology, sink)"


class TransactionalBatch(ForeachBatch):
    """Calls `write(connection, rows)` once per epoch that shows, and commits. The ledger is a table of the same database; its
    row is changed only if it is as it was read, so of two owners one fails, whatever the database locks."""

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    alone: ClassVar[str] = "each step is a transaction of its own, and none is tried again"

    def __init__(
        self, connect: Callable[[], Any], write: Callable[[Any, Any], object], staging: str, ledger: str
    ) -> None:
        if not is_safe_name(ledger):
            raise ConfigError(f"{ledger!r} is no name of a table.", cure="Use letters, digits and _.")
        super().__init__(lambda rows, _: self._written(rows), per="epoch", staging=staging)
        self._connect, self._write, self._table = connect, write, ledger
        self._entry: Entry | None = None
        self._shown: Epoch | None = None
        self.elsewhere = "write into another database"
        self.__dict__["reason"] = f"rows and the epoch's number, in {ledger}, are in one transaction"

    def open(self, context: SinkContext) -> None:
        super().open(context)
        self._entry = Entry(
            context.topology, context.sink, "", context.job_id, context.region or "", 0, int(context.token)
        )
        if self.is_staged:
            self._make_ledger()
            self.committed_epoch()

    # --- the ledger ---

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        connection = self._connect()
        try:
            yield connection
            connection.commit()
        except BaseException:
            with suppress(Exception):
                connection.rollback()
            raise
        finally:
            with suppress(Exception):
                connection.close()

    def _make_ledger(self) -> None:
        try:
            with self._transaction() as connection:
                self._found(connection)
        except Exception:  # every driver has errors of its own; if it was another one, it comes again
            with self._transaction() as connection:
                connection.cursor().execute(f"CREATE TABLE {self._table} ({COLUMNS})")

    def _own(self) -> Entry:
        assert self._entry is not None, "open() comes first"
        return self._entry

    def _where(self) -> str:
        return f"topology = {literal(self._own().topology)} AND sink = {literal(self._own().sink)}"

    def _found(self, connection: Any) -> Entry | None:
        cursor = connection.cursor()
        cursor.execute(f"SELECT job, epoch, token FROM {self._table} WHERE {self._where()}")
        row = cursor.fetchone()
        return None if row is None else replace(self._own(), job=row[0], epoch=int(row[1]), token=int(row[2]))

    def _advance(self, connection: Any, found: Entry | None, epoch: int) -> None:
        """Set the row, if it is still as it was found."""
        own, cursor = self._own(), connection.cursor()
        if found is None:
            values = f"{literal(own.topology)}, {literal(own.sink)}, {literal(own.job)}, {epoch}, {own.token}"
            cursor.execute(f"INSERT INTO {self._table} (topology, sink, job, epoch, token) VALUES ({values})")
            return
        cursor.execute(
            f"UPDATE {self._table} SET job = {literal(own.job)}, epoch = {epoch}, token = {own.token} "
            f"WHERE {self._where()} AND epoch = {found.epoch} AND token = {found.token}"
        )
        if (found.epoch, found.token) != (epoch, own.token) and cursor.rowcount == 0:
            raise FencedError(
                f"{self._table} was changed by a newer owner.", cure="Stop this run; the newer one goes on."
            )

    def committed_epoch(self) -> Epoch | None:
        with self._transaction() as connection:
            found = self._found(connection)
        accept(found, self._own(), self.describe())
        return None if found is None or not found.epoch else Epoch(found.epoch)

    def note_committed(self, epoch: Epoch) -> None:
        if self._shown != epoch:
            self._note(int(epoch))

    def _note(self, epoch: int | None) -> None:
        with self._transaction() as connection:
            found = self._found(connection)
            accept(found, self._own(), self.describe())
            self._advance(
                connection, found, (0 if found is None else found.epoch) if epoch is None else epoch
            )

    # --- an epoch ---

    def show(self, epoch: Epoch, prepared: Any) -> None:
        rows = self._rows(prepared) if prepared["files"] else None
        with self._transaction() as connection:
            found = self._found(connection)
            if accept(found, replace(self._own(), epoch=int(epoch)), self.describe()):
                if rows is not None:
                    self._write(connection, rows)
                self._advance(connection, found, int(epoch))
        self._shown = epoch

    def abandon(self, epoch: Epoch) -> None:
        self._note(None)  # from now on older owners are refused
        super().abandon(epoch)

    def is_untouched(self, prepared: Any) -> bool:
        return True  # the ledger says it exactly

    # --- outside of regions ---

    def _written(self, rows: Any) -> None:
        with self._transaction() as connection:
            self._write(connection, rows)

    def describe(self) -> str:
        return f"{getattr(self._write, '__name__', 'a function')} per epoch, in a transaction"
