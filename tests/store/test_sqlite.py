"""The store in one SQLite file: the suite, then what is special about it."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from holdfast.durable import checksum
from holdfast.errors import DamagedError, NoSpaceError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store import chunks
from holdfast.store.base import Store
from holdfast.store.sqlite import database, database_store
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.testing.store_conformance import TOPOLOGY
from holdfast.testing.store_races import RacingStores

REGION = RegionName("main")


class TestSqliteStore(RacingStores):
    def make_store(self, tmp_path: Path) -> Store:
        return SqliteStore(tmp_path / "a store.db")


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "store.db")
    store.open(TOPOLOGY)
    store.acquire()
    store.create_entry("entry")
    return store


@pytest.mark.fault("SR05", "SR13")
def test_it_is_one_private_file(store: SqliteStore) -> None:
    store.put("entry", {"k": b"v"})
    store.release()
    store.close()
    assert [path.name for path in store.path.parent.iterdir()] == ["store.db"]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.fault("S02")
def test_it_syncs_as_much_as_sqlite_can(store: SqliteStore) -> None:
    with store._db.reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 3
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


@pytest.mark.parametrize("table", ["pairs", "records", "epochs", "owner", "identity", "segments"])
@pytest.mark.fault("C10")
def test_a_changed_row_is_damage_even_if_sqlite_is_content(
    table: str, store: SqliteStore, tmp_path: Path
) -> None:
    store.put("entry", {"k": b"value"})
    store.save_record("r", b"value")
    store.publish(REGION, Epoch(1), b"value")
    (tmp_path / "local").write_bytes(b"value")
    store.put_segment("entry", "s", tmp_path / "local", checksum(b"value"))
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute(
            f"UPDATE {table} SET value = CAST(substr(value, 1, length(value) - 1) || 'X' AS BLOB)"
        )
    connection.close()
    with pytest.raises(DamagedError, match=f"store.db.*{table}"):
        again = SqliteStore(store.path)
        again.open(TOPOLOGY)
        again.acquire()


def test_chunks_know_their_place(tmp_path: Path) -> None:
    path = tmp_path / "db"
    chunk = chunks.encode("e", "k", 0, 2, b"data")
    assert chunks.decode(chunk, path, "e", "k", 0, 2) == b"data"
    for entry, key, number, count in (("x", "k", 0, 2), ("e", "x", 0, 2), ("e", "k", 1, 2), ("e", "k", 0, 1)):
        with pytest.raises(DamagedError):
            chunks.decode(chunk, path, entry, key, number, count)
    for index in range(len(chunk)):
        harmed = chunk[:index] + bytes([chunk[index] ^ 1]) + chunk[index + 1 :]
        with pytest.raises(DamagedError):
            chunks.decode(harmed, path, "e", "k", 0, 2)
    for cut in range(len(chunk)):
        with pytest.raises(DamagedError):
            chunks.decode(chunk[:cut], path, "e", "k", 0, 2)


def test_a_segment_with_a_wrong_checksum_is_not_stored(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"bytes")
    with pytest.raises(StoreError, match="checksum"):
        store.put_segment("entry", "s", tmp_path / "local", 1)
    assert store.keys("entry") == []


@pytest.mark.fault("K01", "K05")
def test_no_space_is_told_apart_and_nothing_is_half_done(store: SqliteStore) -> None:
    with store._db.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(NoSpaceError):
        store.put("entry", {"a": b"", "k": bytes(100_000)})
    assert store.keys("entry") == []
    assert not store.accepts_writes()
    with store._db.reading() as connection:
        connection.execute("PRAGMA max_page_count=100000")
    assert store.accepts_writes()
    store.put("entry", {"a": b"", "k": bytes(100_000)})


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE precious (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(DamagedError, match="not a holdfast store"):
        SqliteStore(path).open(TOPOLOGY)
    assert path.read_bytes() == before


def test_a_file_locked_by_a_stopped_process_is_reported(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    other = SqliteStore(store.path)
    other.open(TOPOLOGY)
    with store._db.changing(), pytest.raises(StoreError, match="locked by another process"):
        other.acquire(take_over=True)
    other.close()


def test_the_event_log_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_store, "EVENTS_MAX", 10)
    for step in range(15):
        store.append_events([("e", {"step": step}), ("large", {"x": "y" * 100_000})])
    assert len(store.events()) == 10
    assert store.events()[-2].data == {"step": 14}
    store.append_events([("unfit", {("a",): 1})])  # type: ignore[dict-item]
    assert store.events_dropped == 1
