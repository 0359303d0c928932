"""A store in one SQLite file, written by the driver: for `local[...]`.

    PATH                   the database
    PATH.owner-<token>     locked by the owner for as long as it lives

Every change is one transaction, and every transaction first compares the owner's token: an owner that was replaced
changes nothing. Before an owner goes on, the whole file is verified. A process stopped in the middle of a
transaction keeps SQLite's own lock: a take-over then waits and is refused; end that process.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import FencedError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import locks, sealed_file
from holdfast.store.base import Event, Identity, SegmentRef
from holdfast.store.files.identity import check_topology
from holdfast.store.names import check_epoch, check_name, check_value
from holdfast.store.publish_lookup import LookedUpStore
from holdfast.store.sqlite import chunks
from holdfast.store.sqlite.database import Database, row_crc

VALUE_LIMIT = 8 << 20
EVENTS_MAX = 10_000
EVENT_BYTES_MAX = 1 << 16
PROBE_BYTES = 256 << 10
PROBE = "_probe"


class SqliteStore(LookedUpStore):
    """A store in one file. Readers need neither `open` nor `acquire`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(path))
        self.url = f"sqlite:{self.path}"
        self.value_limit = VALUE_LIMIT
        self.executors_may_write = False
        self.events_dropped = 0
        self._db = Database(self.path)
        self._token: OwnerToken | None = None
        self._held: io.FileIO | None = None

    # --- identity and ownership ---
    def open(self, topology: str) -> Identity:
        if not self._db.exists():
            self._refuse_leftovers()
            self._db.create(Identity(secrets.token_hex(16), topology))
        identity = self.read_identity()
        check_topology(str(self.path), identity, topology)
        return identity

    def read_identity(self) -> Identity:
        """The identity of a store that exists, for readers that do not know its topology."""
        value = self._one("identity", "id = ?", (1,), (1,))
        if value is None:
            raise sealed_file.damaged(self.path, "has no identity")
        fields = json.loads(value)
        return Identity(fields["job_id"], fields["topology"], fields["format"])

    def acquire(self, *, take_over: bool = False) -> OwnerToken:
        if self._token is not None:
            raise StoreError(f"{self.path} is already owned by this very object.", cure="Release it first.")
        fp("lease.acquire")
        self._db.verify()
        with durable.translate_os_errors(str(self.path)):
            temporary, file = locks.create_locked(self.path.parent, b"")
            try:
                token = self._claim(temporary, take_over)
            except BaseException:
                file.close()
                raise
            finally:
                durable.remove_quietly(temporary)
        self._token, self._held = token, file
        fp("lease.acquired")
        return token

    def check_owner(self) -> None:
        with self._db.reading() as connection:
            self._compare_token(connection)

    def release(self) -> None:
        if self._token is None:
            return
        try:
            with self._changing() as connection:
                self._set_owner(connection, {**self._owner_row(connection), "released": True})
        except FencedError:
            pass  # the newer owner has it already
        finally:
            durable.remove_quietly(self._lock_path(self._token))
            self._let_go()

    def close(self) -> None:
        """Let go of everything. Without `release` before, the store looks as after a crash."""
        self._let_go()
        self._db.close()

    def owner(self) -> Mapping[str, Any] | None:
        with self._db.reading() as connection:
            row = self._owner_row(connection)
        if not row["token"] or row.pop("released", False):
            return None
        return {**row, "alive": locks.is_held(self._lock_path(row["token"]))}

    # --- entries and pairs ---
    def create_entry(self, entry: str) -> None:
        with self._changing() as connection:
            crc = row_crc("entries", check_name("entry", entry))
            connection.execute("INSERT OR IGNORE INTO entries VALUES (?, ?)", (entry, crc))

    def delete_entry(self, entry: str) -> None:
        check_name("entry", entry)
        if not self._step("gc.delete"):
            with self._changing() as connection:
                for table in ("entries", "pairs", "segments", "chunks"):
                    connection.execute(f"DELETE FROM {table} WHERE entry = ?", (entry,))

    def has_entry(self, entry: str) -> bool:
        return bool(self._rows("SELECT 1 FROM entries WHERE entry = ?", check_name("entry", entry)))

    def entries(self) -> list[str]:
        return [str(row[0]) for row in self._rows("SELECT entry FROM entries ORDER BY entry")]

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        rows = []
        for key, value in pairs.items():
            check_value(entry, check_name("key", key), value, self.value_limit)
            rows.append((entry, key, value, row_crc("pairs", entry, key, value=value)))
        if self._step("ckpt.op.put"):
            return
        with self._changing() as connection:
            self._require_entry(connection, entry)
            for key in pairs:
                if connection.execute(
                    "SELECT 1 FROM segments WHERE entry = ? AND key = ?", (entry, key)
                ).fetchone():
                    raise StoreError(f"{self.describe(entry, key)} is a segment; a pair cannot replace it.")
            connection.executemany("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?, ?)", rows)
        self._step("ckpt.op.put_done")

    def get(self, entry: str, key: str) -> bytes | None:
        names = (check_name("entry", entry), check_name("key", key))
        return self._one("pairs", "entry = ? AND key = ?", names, names)

    def delete(self, entry: str, keys: Sequence[str]) -> None:
        names = [(check_name("entry", entry), check_name("key", key)) for key in keys]
        if not self._step("gc.delete"):
            with self._changing() as connection:
                for table in ("pairs", "segments", "chunks"):
                    connection.executemany(f"DELETE FROM {table} WHERE entry = ? AND key = ?", names)

    def keys(self, entry: str) -> list[str]:
        check_name("entry", entry)
        both = "SELECT key FROM pairs WHERE entry = ?1 UNION SELECT key FROM segments WHERE entry = ?1 ORDER BY key"
        return [str(row[0]) for row in self._rows(both, entry)]

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        check_name("key", key)
        self._step("ckpt.op.put")
        with self._changing() as connection:
            self._require_entry(connection, entry)
            ref = chunks.store(connection, self.describe(entry, key), entry, key, Path(local), crc)
        self._step("ckpt.op.put_done")
        return ref

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        with self._db.reading() as connection:
            chunks.fetch(connection, self.path, ref, Path(local))

    def describe(self, entry: str, key: str) -> str:
        return f"{self.path} ({entry}/{key})"

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        self._step("ckpt.manifest.tmp_written")
        with self._changing() as connection:
            newest = connection.execute(
                "SELECT max(epoch) FROM epochs WHERE region = ?", (region,)
            ).fetchone()[0]
            if newest is not None and epoch <= newest:
                raise StoreError(
                    f"epoch {epoch} of region {region!r} is not newer than {newest}, the newest one in {self.path}.",
                    cure="An epoch is published once; start the run again to go on after the newest one.",
                )
            crc = row_crc("epochs", region, epoch, value=manifest)
            connection.execute("INSERT INTO epochs VALUES (?, ?, ?, ?)", (region, epoch, manifest, crc))
            fp("ckpt.manifest.fsynced")
        self._step("ckpt.manifest.renamed")
        self._step("ckpt.dir.fsynced")
        self.check_owner()

    def epochs(self, region: RegionName) -> list[Epoch]:
        check_name("region", region)
        rows = self._rows("SELECT epoch FROM epochs WHERE region = ? ORDER BY epoch", region)
        return [Epoch(row[0]) for row in rows]

    def manifest(self, region: RegionName, epoch: Epoch) -> bytes:
        names = (check_name("region", region), check_epoch(epoch))
        value = self._one("epochs", "region = ? AND epoch = ?", names, names)
        if value is None:
            raise StoreError(f"{self.path}: epoch {epoch} of {region!r} was never published, or is deleted.")
        return value

    def delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        check_name("region", region)
        if not self._step("gc.delete"):
            with self._changing() as connection:
                connection.execute("DELETE FROM epochs WHERE region = ? AND epoch = ?", (region, epoch))

    # --- controller records, events, mailbox ---
    def save_record(self, name: str, data: bytes) -> None:
        crc = row_crc("records", check_name("record", name), value=data)
        with self._changing() as connection:
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (name, data, crc))

    def load_record(self, name: str) -> bytes | None:
        return self._one("records", "name = ?", (check_name("record", name),), (name,))

    def append_events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        try:
            rows = [_event_row(kind, data) for kind, data in events]
            with self._changing() as connection:
                connection.executemany("INSERT INTO events (value, crc) VALUES (?, ?)", rows)
                last = connection.execute("SELECT max(number) FROM events").fetchone()[0] or 0
                connection.execute("DELETE FROM events WHERE number <= ?", (last - EVENTS_MAX,))
        except (StoreError, OSError, TypeError, ValueError, RecursionError):
            self.events_dropped += len(events)

    def events(self, after: int = -1) -> list[Event]:
        rows = self._rows("SELECT number, value, crc FROM events WHERE number > ? ORDER BY number", after)
        good = [(number, value) for number, value, crc in rows if row_crc("events", value=value) == crc]
        return [Event(number, *json.loads(value)) for number, value in good]

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        value = json.dumps([command, dict(data)]).encode()
        if len(value) > EVENT_BYTES_MAX:
            raise StoreError(
                f"the command {command[:40]!r} has {len(value)} bytes; {EVENT_BYTES_MAX} are allowed."
            )
        with self._db.changing() as connection:
            crc = row_crc("mail", value=value)
            connection.execute("INSERT INTO mail (value, crc) VALUES (?, ?)", (value, crc))

    def collect_mail(self) -> list[tuple[str, Mapping[str, Any]]]:
        if not self._rows("SELECT 1 FROM mail LIMIT 1"):
            self.check_owner()
            return []
        with self._changing() as connection:
            rows = connection.execute("SELECT value, crc FROM mail ORDER BY number").fetchall()
            connection.execute("DELETE FROM mail")
        good = [json.loads(value) for value, crc in rows if row_crc("mail", value=value) == crc]
        if len(good) < len(rows):
            self.append_events([("mail.refused", {"reason": f"{self.path} held a damaged mail"})])
        return [(command, data) for command, data in good]

    def accepts_writes(self) -> bool:
        self.check_owner()
        try:
            with self._changing() as connection:
                self._set_probe(connection, bytes(PROBE_BYTES))
            with self._changing() as connection:
                connection.execute("DELETE FROM records WHERE name = ?", (PROBE,))
        except FencedError:
            raise
        except StoreError:
            return False
        return True

    # --- helpers ---
    def _step(self, name: str) -> bool:
        """A failpoint outside of a transaction: a process stopped there holds no lock of SQLite's."""
        with durable.translate_os_errors(str(self.path)):
            return fp(name)

    def _claim(self, temporary: Path, take_over: bool) -> OwnerToken:
        """Inside one transaction, which SQLite lets one process have at a time."""
        with self._db.changing() as connection:
            row = self._owner_row(connection)
            if row["token"] and not take_over and locks.is_held(self._lock_path(row["token"])):
                raise locks.owned(str(self.path), row)
            token = OwnerToken(row["token"] + 1)
            os.rename(temporary, self._lock_path(token))
            self._set_owner(connection, {"token": token, **locks.who_am_i()})
        durable.remove_quietly(self._lock_path(row["token"]))
        return token

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction of the current owner."""
        with durable.translate_os_errors(str(self.path)), self._db.changing() as connection:
            self._compare_token(connection)
            yield connection

    def _compare_token(self, connection: sqlite3.Connection) -> None:
        if self._token is None:
            raise StoreError(
                f"{self.path} is not owned by this run.", cure="Acquire the store before writing."
            )
        if self._owner_row(connection)["token"] != self._token:
            raise FencedError(
                f"{self.path} has a newer owner than this run (token {self._token}).",
                cure="This run stops here; the newer one goes on from the last published epoch.",
            )

    def _owner_row(self, connection: sqlite3.Connection) -> dict[str, Any]:
        row = connection.execute("SELECT value, crc FROM owner WHERE id = 1").fetchone()
        if row is None:
            return {"token": 0}
        self._db.check(row[1], "owner", 1, value=row[0])
        return dict(json.loads(row[0]))

    def _set_owner(self, connection: sqlite3.Connection, info: dict[str, Any]) -> None:
        value = json.dumps(info).encode()
        crc = row_crc("owner", 1, value=value)
        connection.execute("INSERT OR REPLACE INTO owner VALUES (1, ?, ?)", (value, crc))

    def _set_probe(self, connection: sqlite3.Connection, data: bytes) -> None:
        row = (PROBE, data, row_crc("records", PROBE, value=data))
        connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)

    def _require_entry(self, connection: sqlite3.Connection, entry: str) -> None:
        found = connection.execute("SELECT 1 FROM entries WHERE entry = ?", (check_name("entry", entry),))
        if not found.fetchone():
            raise StoreError(f"{self.path} has no entry {entry!r}.", cure="Create the entry first.")

    def _one(self, table: str, where: str, arguments: tuple[Any, ...], key: tuple[Any, ...]) -> bytes | None:
        """A verified value."""
        rows = self._rows(f"SELECT value, crc FROM {table} WHERE {where}", *arguments)
        if not rows:
            return None
        value, crc = rows[0]
        self._db.check(crc, table, *key, value=value)
        return bytes(value)

    def _rows(self, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
        with self._db.reading() as connection:
            return connection.execute(sql, arguments).fetchall()

    def _refuse_leftovers(self) -> None:
        """A journal or an owner's lock without the database: it was there and is gone."""
        for name in sealed_file.list_directory(self.path.parent):
            if name == f"{self.path.name}-journal" or name.startswith(f"{self.path.name}.owner-"):
                raise sealed_file.damaged(self.path, f"is missing, but {name} is there")

    def _lock_path(self, token: int) -> Path:
        return self.path.with_name(f"{self.path.name}.owner-{token:010d}")

    def _let_go(self) -> None:
        held, self._held, self._token = self._held, None, None
        if held is not None:
            held.close()


def _event_row(kind: str, data: Mapping[str, Any]) -> tuple[bytes, int]:
    """An event's value and checksum. Data that is too large is replaced by its size."""
    value = json.dumps([time.time(), kind, dict(data)], default=str).encode()
    if len(value) > EVENT_BYTES_MAX:
        value = json.dumps([time.time(), kind[:100], {"left_out_bytes": len(value)}]).encode()
    return value, row_crc("events", value=value)
