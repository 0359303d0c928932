"""A store in one SQLite file, written by the driver: for `local[...]`.

    PATH                   the database
    PATH.owner-<token>     locked by the owner for as long as it lives

A process stopped in the middle of a transaction keeps SQLite's own lock: a take-over then waits and is refused; end that
process. The parts are neighbours: database (schema, checks), database_store (what is done with it). Page:
docs/formats/store-sqlite.md.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from holdfast import durable
from holdfast.ids import OwnerToken
from holdfast.store import locks, permissions, sealed_file
from holdfast.store.base import Identity
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.database_store import DatabaseStore


class SqliteStore(DatabaseStore):
    """A store in one file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(path))
        super().__init__(Database(self.path), f"sqlite:{self.path}")
        self._lock_file: io.FileIO | None = None

    def open(self, topology: str) -> Identity:
        # Beside the file lies its journal, which SQLite believes.
        permissions.refuse_others([self.path.parent.resolve(), self.path])
        return super().open(topology)

    def _refuse_leftovers(self) -> None:
        """A journal or an owner's lock without the database: it was there and is gone."""
        for name in sealed_file.list_directory(self.path.parent):
            if name == f"{self.path.name}-journal" or name.startswith(f"{self.path.name}.owner-"):
                raise sealed_file.damaged(self.path, f"is missing, but {name} is there")

    def _claim(self, take_over: bool) -> OwnerToken:
        self._db.verify()
        with locks.new_lock(self.path.parent, b"") as (temporary, file):
            token = self._claim_as(take_over, lambda token: os.rename(temporary, self._lock_path(token)))
        durable.remove_quietly(self._lock_path(token - 1))
        self._lock_file = file
        return token

    def _is_alive(self, token: int) -> bool:
        return locks.is_held(self._lock_path(token))

    def _give_up(self) -> None:
        try:
            super()._give_up()
        finally:
            durable.remove_quietly(self._lock_path(self._held()))

    def _let_go(self) -> None:
        held, self._lock_file = self._lock_file, None
        if held is not None:
            held.close()

    def _lock_path(self, token: int) -> Path:
        return self.path.with_name(f"{self.path.name}.owner-{token:010d}")
