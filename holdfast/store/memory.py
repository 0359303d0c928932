"""A store in memory, for tests: `memory:NAME`. Gone with the process.

Its database has no file. What is stored belongs to the name, not to the object: a
second MemoryStore of the same name sees the same data, as a restarted run would. An owner counts as dead when its object
was closed or is no longer referred to.
"""

from __future__ import annotations

import secrets
import weakref
from functools import cache
from pathlib import Path

from holdfast.ids import OwnerToken
from holdfast.store.base import Identity
from holdfast.store.names import check_name
from holdfast.store.sqlite import database
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.database_store import DatabaseStore


@cache
def _empty() -> bytes:
    """A database without rows. Copied for each store: the schema takes a while to read."""
    connection = database.connect(":memory:")
    connection.executescript(database.SCHEMA)
    return connection.serialize()


class _Memory(Database):
    """A database without a file, there from the first moment on. `owner`: the object that owns it."""

    def __init__(self, name: str) -> None:
        super().__init__(Path(f"memory:{name}"))
        self._connection = database.connect(":memory:")
        self._connection.deserialize(_empty())
        self.owner: weakref.ref[MemoryStore] | None = None

    def create(self, identity: Identity) -> None:
        with self.changing() as connection:
            if self.value("identity", 1) is None:
                database.put_identity(connection, identity)

    def exists(self) -> bool:
        return self.value("identity", 1) is not None

    def close(self) -> None:
        """It goes when nobody knows it any more."""


_by_name: dict[str, _Memory] = {}


def forget(name: str) -> None:
    _by_name.pop(name, None)


class MemoryStore(DatabaseStore):
    """A store that lives in this process."""

    _db: _Memory

    def __init__(self, name: str = "") -> None:
        self.name = check_name("memory store", name or secrets.token_hex(8))
        db = _by_name.get(self.name) or _by_name.setdefault(self.name, _Memory(self.name))
        super().__init__(db, f"memory:{self.name}")

    def _refuse_leftovers(self) -> None:
        """Whatever has this name is a store."""

    def _claim(self, take_over: bool) -> OwnerToken:
        def show_life(token: OwnerToken) -> None:
            self._db.owner = weakref.ref(self)

        return self._claim_as(take_over, show_life)

    def _is_alive(self, token: int) -> bool:
        holder = self._db.owner() if self._db.owner else None
        return holder is not None and holder._token == token
