"""A store in a SQLite database: everything but where the database is, and how one sees that its owner lives.

Every change is one transaction, and every transaction first compares the owner's token: an owner that was replaced
changes nothing. Before an owner goes on, the whole database is verified.
"""

from __future__ import annotations

import json
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from holdfast.failpoints import fp
from holdfast.ids import Epoch, OwnerToken, RegionName
from holdfast.store import chunks, identity_record, locks, refusals, sealed_file, segment_copy
from holdfast.store.base import Event, Identity, Mail, NewEvent, SegmentRef, Store
from holdfast.store.events.as_bytes import (
    SEALED_MAIL_BYTES_MAX,
    decode_mail,
    encode_event,
    encode_mail,
    open_mails,
    refuse_large,
)
from holdfast.store.names import check_name, named_crc
from holdfast.store.sqlite import database
from holdfast.store.sqlite.database import Database

EVENTS_MAX = 10_000
CHUNK_BYTES = 1 << 20
PROBE = "_probe"


class DatabaseStore(Store):
    """Readers need neither `open` nor `acquire`."""

    def __init__(self, db: Database, url: str) -> None:
        self.place = str(db.path)
        self.url = url
        self._db = db

    # --- identity and ownership ---
    def _load_identity(self) -> Identity | None:
        if not self._db.exists():
            return None
        value = self._db.value("identity", 1)
        if value is None:
            raise sealed_file.damaged(self.place, "has no identity")
        return identity_record.decode(self.place, value)

    def _create(self, identity: Identity) -> None:
        self._db.create(identity)

    @abstractmethod
    def _is_alive(self, token: int) -> bool:
        """Whether the owner with this token lives."""

    def _claim_as(self, take_over: bool, show_life: Callable[[OwnerToken], None]) -> OwnerToken:
        """Become the owner. Before others can read of it, `show_life` lets them see that it lives."""
        with self._db.changing() as connection:
            before = self._owner_record()
            if before["token"] and not take_over and self._is_alive(before["token"]):
                raise refusals.owned(self.place, before)
            token = OwnerToken(before["token"] + 1)
            show_life(token)
            _save_owner(connection, {"token": token, **locks.who_am_i()})
        return token

    def check_owner(self) -> None:
        if self._owner_record()["token"] != self._held():
            raise refusals.fenced(self.place, self._token)

    def _give_up(self) -> None:
        with self._changing() as connection:
            _save_owner(connection, {**self._owner_record(), "released": True})

    def close(self) -> None:
        super().close()
        self._db.close()

    def owner(self) -> Mapping[str, Any] | None:
        record = self._owner_record()
        if not record["token"] or record.pop("released", False):
            return None
        return {**record, "alive": self._is_alive(record["token"])}

    def _owner_record(self) -> dict[str, Any]:
        """Its token is 0 before the first owner."""
        value = self._db.value("owner", 1)
        with sealed_file.understood(self.place):
            return {"token": 0} if value is None else dict(_decoded(value))

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction of the current owner. Failpoints are passed outside of it, lest a process that is
        stopped there hold SQLite's lock."""
        with self._db.changing() as connection:
            self.check_owner()
            yield connection

    # --- entries and pairs ---
    def _create_entry(self, entry: str) -> None:
        with self._changing() as connection:
            row = (entry, named_crc("entries", entry))
            connection.execute("INSERT OR IGNORE INTO entries VALUES (?, ?)", row)

    def _delete_entry(self, entry: str) -> None:
        with self._changing() as connection:
            for table in ("entries", "pairs", "segments", "chunks"):
                connection.execute(f"DELETE FROM {table} WHERE entry = ?", (entry,))

    def entries(self) -> list[str]:
        return [str(row[0]) for row in self._db.rows("SELECT entry FROM entries ORDER BY entry")]

    def _put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        with self._changing() as connection:
            self._require_entry(entry)
            for key, value in pairs.items():
                if self._db.rows("SELECT 1 FROM segments WHERE entry = ? AND key = ?", entry, key):
                    raise refusals.is_segment(self.describe(entry, key))
                database.put(connection, "pairs", entry, key, value=value)

    def _get(self, entry: str, key: str) -> bytes | None:
        return self._db.value("pairs", entry, key)

    def _delete(self, entry: str, keys: Sequence[str]) -> None:
        with self._changing() as connection:
            for table in ("pairs", "segments", "chunks"):
                rows = [(entry, key) for key in keys]
                connection.executemany(f"DELETE FROM {table} WHERE entry = ? AND key = ?", rows)

    def _keys(self, entry: str) -> list[str]:
        both = "SELECT key FROM pairs WHERE entry = ?1 UNION SELECT key FROM segments WHERE entry = ?1"
        return [str(row[0]) for row in self._db.rows(both, entry)]

    def has_entry(self, entry: str) -> bool:
        return bool(self._db.rows("SELECT 1 FROM entries WHERE entry = ?", check_name("entry", entry)))

    def _require_entry(self, entry: str) -> None:
        if not self.has_entry(entry):
            raise refusals.no_entry(self.place, entry)

    # --- segments ---
    def put_segment(self, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
        check_name("key", key)
        with self._writing():
            fp("ckpt.op.put")
            with self._changing() as connection:
                self._require_entry(entry)
                ref = self._put_chunks(connection, entry, key, Path(local), crc)
            fp("ckpt.op.put_done")
        return ref

    def _put_chunks(
        self, connection: sqlite3.Connection, entry: str, key: str, local: Path, crc: int
    ) -> SegmentRef:
        """Chunks in one table, a summary of the whole in another (holdfast/store/chunks.py). StoreError if the key is
        taken by anything else."""
        size = segment_copy.size_of(local)
        count = -(-size // CHUNK_BYTES)
        summary = chunks.SUMMARY.pack(size, crc, count)
        if self._db.rows("SELECT 1 FROM pairs WHERE entry = ? AND key = ?", entry, key):
            raise refusals.is_pair(self.describe(entry, key))
        known = self._db.value("segments", entry, key)
        if known not in (None, summary):
            raise refusals.other_bytes(self.describe(entry, key))
        if known is None:
            for number, data in enumerate(segment_copy.pieces(local, crc, CHUNK_BYTES)):
                row = (entry, key, number, chunks.encode(entry, key, number, count, data))
                connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?)", row)
            database.put(connection, "segments", entry, key, value=summary)
        return SegmentRef(entry, key, size, crc)

    def fetch_segment(self, ref: SegmentRef, local: Path) -> None:
        segment_copy.receive(ref, Path(local), self.describe(ref.entry, ref.key), self._stored(ref))

    def _stored(self, ref: SegmentRef) -> Iterator[bytes]:
        """The verified pieces of a segment, all of one moment."""
        sql = "SELECT value FROM chunks WHERE entry = ? AND key = ? AND number = ?"

        def chunk(number: int) -> bytes | None:
            rows = self._db.rows(sql, ref.entry, ref.key, number)
            return rows[0][0] if rows else None

        with self._db.reading():
            yield from chunks.read(self.place, ref, self._db.value("segments", ref.entry, ref.key), chunk)

    # --- epochs ---
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        fp("ckpt.manifest.tmp_written")
        with self._changing() as connection:
            refusals.refuse_stale(self.place, region, epoch, self._epochs(region))
            database.put(connection, "epochs", region, epoch, value=manifest)
            fp("ckpt.manifest.fsynced")
        fp("ckpt.manifest.renamed")
        fp("ckpt.dir.fsynced")
        self.check_owner()

    def _epochs(self, region: RegionName) -> list[int]:
        return [row[0] for row in self._db.rows("SELECT epoch FROM epochs WHERE region = ?", region)]

    def _manifest(self, region: RegionName, epoch: Epoch) -> bytes | None:
        return self._db.value("epochs", region, epoch)

    def _delete_epoch(self, region: RegionName, epoch: Epoch) -> None:
        with self._changing() as connection:
            connection.execute("DELETE FROM epochs WHERE region = ? AND epoch = ?", (region, epoch))

    # --- controller records, events, mailbox ---
    def _save_record(self, name: str, data: bytes) -> None:
        with self._changing() as connection:
            database.put(connection, "records", name, value=data)

    def _load_record(self, name: str) -> bytes | None:
        return self._db.value("records", name)

    def _append_events(self, events: Sequence[NewEvent]) -> None:
        values = [encode_event(kind, data) for kind, data in events]
        with self._changing() as connection:
            for value in values:
                _append(connection, "events", value)
            last = connection.execute("SELECT max(number) FROM events").fetchone()[0] or 0
            connection.execute("DELETE FROM events WHERE number <= ?", (last - EVENTS_MAX,))

    def _events_after(self, after: int) -> list[Event]:
        sql = "SELECT number, value, crc FROM events WHERE number > ? ORDER BY number"
        rows = self._db.rows(sql, after)
        good = [
            (number, value)
            for number, value, crc in rows
            if isinstance(value, bytes) and named_crc("events", value=value) == crc
        ]
        with sealed_file.understood(self.place):
            return [Event(number, *json.loads(value)) for number, value in good]

    def post(self, command: str, data: Mapping[str, Any]) -> None:
        value = encode_mail(command, data)
        with self._db.changing() as connection:
            _append(connection, "mail", value)

    def _collect_mail(self) -> tuple[list[Mail], list[str]]:
        if not self._db.rows("SELECT 1 FROM mail LIMIT 1"):
            self.check_owner()
            return [], []
        with self._changing() as connection:
            sized = "CASE WHEN length(value) <= ? THEN value END"  # a larger one is not read
            rows = connection.execute(
                f"SELECT {sized}, length(value), crc FROM mail ORDER BY number", (SEALED_MAIL_BYTES_MAX,)
            ).fetchall()
            connection.execute("DELETE FROM mail")
        return open_mails(rows, self._open_mail)

    def _open_mail(self, row: tuple[Any, Any, Any]) -> Mail:
        value, size, crc = row
        if isinstance(size, int):
            refuse_large(f"a mail in {self.place}", size)
        if not isinstance(value, bytes) or named_crc("mail", value=value) != crc:
            raise sealed_file.damaged(self.place, "held a damaged mail")
        return decode_mail(value, self.place)

    def _probe(self, data: bytes) -> None:
        self._save_record(PROBE, data)
        with self._changing() as connection:
            connection.execute("DELETE FROM records WHERE name = ?", (PROBE,))


@lru_cache(maxsize=8)
def _decoded(owner: bytes) -> dict[str, Any]:
    """Every change looks at the owner's record, which seldom changes."""
    return dict(json.loads(owner))


def _save_owner(connection: sqlite3.Connection, record: Mapping[str, Any]) -> None:
    database.put(connection, "owner", 1, value=json.dumps(record).encode())


def _append(connection: sqlite3.Connection, table: str, value: bytes) -> None:
    crc = named_crc(table, value=value)
    connection.execute(f"INSERT INTO {table} (value, crc) VALUES (?, ?)", (value, crc))
