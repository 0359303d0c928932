"""SQLite files that bring more than tables of ours: refused before a row of them is read, and nothing changes."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest

from holdfast.errors import DamagedError
from holdfast.ids import Epoch, RegionName
from holdfast.store.urls import open_store

REGION = RegionName("r")
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, '' , 0 FROM n"
FOREIGN = {
    "a trigger that deletes epochs": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM epochs; END",
    "a view in the place of a table": f"DROP TABLE events; CREATE VIEW events(number, value, crc) AS {ENDLESS}",
    "one table more": "CREATE TABLE more (x)",
    "a table less": "DROP TABLE records",
    "an index on an expression": "CREATE INDEX i ON events (abs(number))",
    "a column more": "ALTER TABLE mail ADD COLUMN more",
    "a generated column": "ALTER TABLE mail ADD COLUMN more AS (number + 1)",
    "a virtual table": "CREATE VIRTUAL TABLE more USING fts5(x)",
}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    store = open_store(f"sqlite:{tmp_path}/db")
    store.open("t")
    store.acquire()
    store.publish(REGION, Epoch(1), b"manifest")
    store.append_events([("a", {})])
    store.release()
    store.close()
    return tmp_path / "db"


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.fault("SR05", "U07", "O06")
def test_a_foreign_schema_is_refused_and_nothing_changes(database: Path, what: str) -> None:
    with sqlite3.connect(database) as other:
        other.executescript(FOREIGN[what])
    other.close()
    before = database.read_bytes()
    signal.alarm(20)  # a reader that hangs is killed
    try:
        for look in ("epochs", "events", "open"):
            store = open_store(f"sqlite:{database}")
            with pytest.raises(DamagedError, match="schema of a store"):
                {
                    "epochs": lambda store=store: store.epochs(REGION),
                    "events": lambda store=store: store.events(),
                    "open": lambda store=store: store.open("t"),
                }[look]()
            store.close()
    finally:
        signal.alarm(0)
    assert database.read_bytes() == before


def test_our_own_schema_is_taken(database: Path) -> None:
    store = open_store(f"sqlite:{database}")
    assert store.epochs(REGION) == [1]
    store.close()
