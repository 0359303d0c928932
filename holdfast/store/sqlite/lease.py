"""Ownership of a store in SQLite: an owner record with a growing token, and a lock file that dies with its process.

    PATH.owner-<token>     locked by the owner for as long as it lives

The record changes inside a transaction, which SQLite lets one process have at a time.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.ids import OwnerToken
from holdfast.store import locks, refusals, sealed_file
from holdfast.store.sqlite import database
from holdfast.store.sqlite.database import Database


def lock_path(db: Database, token: int) -> Path:
    """The file that the owner with this token keeps locked."""
    return db.path.with_name(f"{db.path.name}.owner-{token:010d}")


def read(db: Database) -> dict[str, Any]:
    """The owner record. Its token is 0 before the first owner."""
    value = db.value("owner", 1)
    return {"token": 0} if value is None else dict(json.loads(value))


def write(connection: sqlite3.Connection, record: Mapping[str, Any]) -> None:
    database.put(connection, "owner", 1, value=json.dumps(record).encode())


def owner_info(db: Database) -> dict[str, Any] | None:
    """Who owns the store, and whether it lives. None: nobody."""
    record = read(db)
    if not record["token"] or record.pop("released", False):
        return None
    return {**record, "alive": locks.is_held(lock_path(db, record["token"]))}


def acquire(db: Database, *, take_over: bool) -> tuple[OwnerToken, io.FileIO]:
    """Become the owner: its token, and the lock it holds."""
    temporary, file = locks.create_locked(db.path.parent, b"")
    try:
        return _claim(db, temporary, take_over), file
    except BaseException:
        file.close()
        raise
    finally:
        durable.remove_quietly(temporary)


def _claim(db: Database, temporary: Path, take_over: bool) -> OwnerToken:
    with db.changing() as connection:
        before = read(db)
        if before["token"] and not take_over and locks.is_held(lock_path(db, before["token"])):
            raise refusals.owned(str(db.path), before)
        token = OwnerToken(before["token"] + 1)
        os.rename(temporary, lock_path(db, token))
        write(connection, {"token": token, **locks.who_am_i()})
    durable.remove_quietly(lock_path(db, before["token"]))
    return token


def refuse_leftovers(db: Database) -> None:
    """A journal or an owner's lock without the database: it was there and is gone."""
    for name in sealed_file.list_directory(db.path.parent):
        if name == f"{db.path.name}-journal" or name.startswith(f"{db.path.name}.owner-"):
            raise sealed_file.damaged(db.path, f"is missing, but {name} is there")
