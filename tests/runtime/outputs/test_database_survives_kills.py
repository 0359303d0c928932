"""Tables of databases after the driver was killed, after the server was killed, and after both are what they are without."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from database_program import build, golden
from killed import killed_and_finished
from postgres_server import PostgresServer

from holdfast.testing import run_local

PROGRAM = Path(__file__).with_name("database_program.py")
COMMIT = ("sink.prepare", "sink.prepared", "ckpt.epoch.published", "sink.commit.begin", "sink.commit.applied", "sink.commit.recorded")  # fmt: skip


def schema_in(server: PostgresServer, name: str) -> str:
    schema = "k" + "".join(c if c.isalnum() else "_" for c in name.lower())[-50:]
    server.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE", f"CREATE SCHEMA {schema}")
    return schema


def seen(server: PostgresServer, schema: str, here: Path) -> list[dict[str, list[tuple[Any, ...]]]]:
    """The tables of both databases."""
    file = sqlite3.connect(here / "out.db")
    wanted = {"added": "n, k, m", "spent": "k, c, total", "log": "n, k, m"}
    return [
        {table: sorted(server.rows(f"SELECT {names} FROM {schema}.{table}")) for table, names in wanted.items()},
        {table: sorted(file.execute(f"SELECT {names} FROM {table}").fetchall()) for table, names in wanted.items()},
    ]  # fmt: skip


def left(server: PostgresServer, schema: str, here: Path) -> list[str]:
    """Staging tables that nobody removed."""
    file = sqlite3.connect(here / "out.db")
    tables = server.rows(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    tables += file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [name for (name,) in tables if name.startswith(("hf_", "__hf"))]


@pytest.mark.slow
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(("failpoint", "mode"), list(zip(COMMIT, ["drain", "async"] * 3, strict=True)))
@pytest.mark.fault("X01", "X02")
def test_a_driver_killed_at_each_step_of_a_commit(
    postgres: PostgresServer, tmp_path: Path, failpoint: str, mode: str
) -> None:
    schema = schema_in(postgres, f"{mode}{failpoint}")
    # With six sinks the hits lie within a commit: some tables show the epoch, others do not yet.
    kills = [f"{failpoint}=kill@{hit}" for hit in ((1, 2) if "published" in failpoint else (2, 8))]
    killed_and_finished(PROGRAM, tmp_path, kills, mode, f"{postgres.url}#{schema}", draws=1)
    assert seen(postgres, schema, tmp_path) == [golden(), golden()]
    assert left(postgres, schema, tmp_path) == []


def kill_amid(
    server: PostgresServer, schema: str, query: str, kills: int, done: threading.Event
) -> list[str]:
    """Kill the server whenever a query finds something, and start it again; what it found."""
    fired: list[str] = []
    while len(fired) < kills and not done.is_set():
        if found := server.rows(query):
            server.restart()
            fired.append(str(found[0][0]))
        time.sleep(0.02)
    return fired


IN_A_COMMIT = (
    "SELECT query FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'INSERT INTO%{schema}%added%'"
)
ANY_TIME = (
    "SELECT relname::text FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relname LIKE 'hf%'"
)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [IN_A_COMMIT, ANY_TIME], ids=["in-a-commit", "any-time"])
@pytest.mark.fault("X05")
def test_a_server_that_is_killed_and_comes_back_is_an_outage(
    postgres: PostgresServer, tmp_path: Path, moment: str, request: pytest.FixtureRequest
) -> None:
    schema = schema_in(postgres, request.node.name)
    # A trigger that takes its time holds commits open for long enough to be hit.
    postgres.run(
        f"CREATE TABLE {schema}.added (n bigint, k text, m bigint)",
        f"CREATE FUNCTION {schema}.slowly() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END$$",
        f"CREATE TRIGGER slow AFTER INSERT ON {schema}.added EXECUTE FUNCTION {schema}.slowly()",
    )
    done = threading.Event()
    fired: list[str] = []
    query = moment.format(schema=schema)
    killer = threading.Thread(target=lambda: fired.extend(kill_amid(postgres, schema, query, 2, done)))
    killer.start()
    try:
        run_local(build("async", f"{postgres.url}#{schema}", str(tmp_path)), store=f"file:{tmp_path}/store")
    finally:
        done.set()
        killer.join()
    assert fired, "the server was never killed"
    assert seen(postgres, schema, tmp_path) == [golden(), golden()]
    assert left(postgres, schema, tmp_path) == []
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"s3cret" not in kept, "the store holds the password"
