"""What a database sink refuses: one sentence with cause and cure, no password in it, nothing half-written, and the run after
the cause was mended goes on where it was."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_server import PostgresServer

import holdfast as hf
from holdfast.errors import ConfigError, HoldfastError, InputError
from holdfast.sinks.database.address import Address
from holdfast.testing import run_local

STREAM = "id long, name string, x double, price decimal(10,4)"
ROWS = [(n, f"name {n}", n / 2, None) for n in range(20)]


@pytest.fixture
def schema(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "r" + "".join(c if c.isalnum() else "_" for c in request.node.name.lower())[-50:]
    postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    yield name
    postgres.run(f"DROP SCHEMA {name} CASCADE")


def run(here: Path, sink: hf.DatabaseSink, rows: Any = ROWS, columns: str = STREAM) -> None:
    topology = hf.Topology("refused")
    stream = topology.source(hf.Rows(rows, columns, rows_per_step=5), name="rows").consistent(period=0.02)
    stream.sink(sink, name="out")
    run_local(topology, store=f"file:{here}/store")


def refusal(here: Path, sink: hf.DatabaseSink, rows: Any = ROWS, columns: str = STREAM) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        run(here, sink, rows, columns)
    told = str(caught.value)
    assert "s3cret" not in told
    assert caught.value.cure, told
    assert "\n" not in told, told
    return caught.value


GOOD = "id bigint PRIMARY KEY, name text, x double precision, price numeric(10,4)"
AT_START = {
    "no table": (None, {}, "there is no table"),
    "no column": ("id bigint, name text, x double precision", {}, "has no column 'price'"),
    "text into a number": (GOOD.replace("name text", "name bigint"), {}, "'name' is string in the stream and bigint"),
    "fractions lost": (GOOD.replace("double precision", "bigint"), {}, "cannot hold every value unchanged"),
    "digits lost": (GOOD.replace("numeric(10,4)", "numeric(10,2)"), {}, "cannot hold every value unchanged"),
    "a column without value": (f"{GOOD}, more int NOT NULL", {}, "needs a value for 'more'"),
    "no key in the table": (
        GOOD.replace("PRIMARY KEY", ""), {"mode": "upsert", "key": "id"}, "no primary key or unique constraint"
    ),
    "no key in the stream": (GOOD, {"mode": "upsert", "key": "nix"}, "the key column 'nix'"),
    "no op in the stream": (GOOD, {"mode": "changelog", "key": "id"}, "the op column 'op'"),
    "a generated column": (
        GOOD.replace("x double precision", "x double precision GENERATED ALWAYS AS (1.0) STORED"), {}, "column"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AT_START)
def test_refused_before_anything_is_written(
    postgres: PostgresServer, schema: str, tmp_path: Path, case: str
) -> None:
    columns, settings, told = AT_START[case]
    if columns is not None:
        postgres.run(f"CREATE TABLE {schema}.t ({columns})")
    found = refusal(tmp_path, hf.DatabaseSink(postgres.url, f"{schema}.t", **settings))
    assert isinstance(found, ConfigError)
    assert told in str(found)
    assert columns is None or postgres.rows(f"SELECT count(*) FROM {schema}.t") == [(0,)]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    found = refusal(tmp_path, hf.DatabaseSink("postgresql://me:s3cret@127.0.0.1:9/db", "t"))
    assert "PostgreSQL at 127.0.0.1:9/db cannot be reached" in str(found)


@pytest.mark.fault("K15")
def test_a_wrong_password_and_an_unknown_database(postgres: PostgresServer, tmp_path: Path) -> None:
    wrong = postgres.url.replace("s3cret", "s3cretwrong")
    assert "authentication failed" in str(refusal(tmp_path, hf.DatabaseSink(wrong, "t")))
    other = postgres.url_of("tester", "nowhere")
    assert 'database "nowhere" does not exist' in str(refusal(tmp_path, hf.DatabaseSink(other, "t")))


@pytest.mark.parametrize("missing", ["INSERT", "CREATE"])
def test_a_missing_right(postgres: PostgresServer, schema: str, tmp_path: Path, missing: str) -> None:
    user = schema[:60]
    postgres.run(
        f"CREATE TABLE {schema}.t ({GOOD})",
        f"CREATE ROLE {user} LOGIN PASSWORD 's3cret/pass%word'",
        f"GRANT USAGE{', CREATE' if missing != 'CREATE' else ''} ON SCHEMA {schema} TO {user}",
        f"GRANT SELECT{', INSERT' if missing != 'INSERT' else ''} ON {schema}.t TO {user}",
    )
    try:
        found = refusal(tmp_path, hf.DatabaseSink(postgres.url_of(user), f"{schema}.t"))
    finally:
        postgres.run(f"DROP OWNED BY {user}", f"DROP ROLE {user}")
    assert "permission denied" in str(found)
    assert "Grant" in found.cure


LATER = {
    "whole number too large": ("id integer, name text", [(1, "a"), (2**40, "b")], "out of range", "id TYPE bigint"),
    "number with too many digits": ("id numeric(3), name text", [(1, "a"), (12345, "b")], "overflow", "id TYPE numeric"),
    "text too long": ("id bigint, name varchar(3)", [(1, "a"), (2, "abcd")], "too long", "name TYPE text"),
    "no uuid": ("id bigint, name uuid", [(1, "x")], "invalid input syntax", "name TYPE text"),
    "null where a value is needed": ("id bigint, name text NOT NULL", [(1, "a"), (2, None)], "no value in 'name'", "name DROP NOT NULL"),
    "a second unique constraint": ("id bigint, name text UNIQUE", [(1, "a"), (2, "a")], "duplicate key", "DROP CONSTRAINT"),
    "a check": ("id bigint CHECK (id < 5), name text", [(1, "a"), (7, "b")], "check constraint", "DROP CONSTRAINT"),
}  # fmt: skip


@pytest.mark.parametrize("case", LATER)
def test_rows_that_the_table_does_not_take(
    postgres: PostgresServer, schema: str, tmp_path: Path, case: str
) -> None:
    columns, rows, told, change = LATER[case]
    postgres.run(f"CREATE TABLE {schema}.t ({columns})")
    sink = f"{schema}.t"
    found = refusal(tmp_path, hf.DatabaseSink(postgres.url, sink), rows, "id long, name string")
    assert isinstance(found, InputError)
    assert told in str(found), str(found)
    assert postgres.rows(f"SELECT count(*) FROM {schema}.t") == [(0,)], "half-written"
    if change == "DROP CONSTRAINT":
        ((name,),) = postgres.rows(
            f"SELECT conname::text FROM pg_constraint WHERE conrelid = '{sink}'::regclass"
        )
        postgres.run(f"ALTER TABLE {sink} DROP CONSTRAINT {name}")
    else:
        postgres.run(f"ALTER TABLE {sink} ALTER COLUMN {change}")
    run(tmp_path, hf.DatabaseSink(postgres.url, sink), rows, "id long, name string")
    assert sorted(postgres.rows(f"SELECT id::bigint, name FROM {sink}")) == sorted(rows)


BAD_ROWS = {
    "a zero character": ("append", [(1, "a\x00b", "upsert")], "does not take a value"),
    "a key without value": ("upsert", [(None, "a", "upsert")], "no value in 'id'"),
    "an unknown operation": ("changelog", [(1, "a", "explode")], "'explode', which is no operation"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_no_table_takes(postgres: PostgresServer, schema: str, tmp_path: Path, case: str) -> None:
    mode, rows, told = BAD_ROWS[case]
    sink = hf.DatabaseSink(
        postgres.url, f"{schema}.t", mode, key=None if mode == "append" else "id", create=True
    )  # type: ignore[arg-type]
    assert told in str(refusal(tmp_path, sink, rows, "id long, name string, op string"))
    assert postgres.rows(f"SELECT count(*) FROM {schema}.t") == [(0,)]


def test_a_table_that_is_dropped_while_a_run_writes(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    postgres.run(
        f"CREATE TABLE {schema}.t (id bigint, name text)",
        f"CREATE FUNCTION {schema}.gone() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION 'table is closed' USING ERRCODE = '42P01'; END$$",
        f"CREATE TRIGGER closed BEFORE INSERT ON {schema}.t EXECUTE FUNCTION {schema}.gone()",
    )
    found = refusal(
        tmp_path, hf.DatabaseSink(postgres.url, f"{schema}.t"), [(1, "a")], "id long, name string"
    )
    assert "table is closed" in str(found)


def test_what_has_no_meaning_is_refused_at_once(tmp_path: Path) -> None:
    for settings in (
        {"url": "mysql://x/y", "table": "t"},
        {"url": "just text", "table": "t"},
        {"url": "sqlite:x.db", "table": "a.b"},
        {"url": "sqlite:x.db", "table": "t", "mode": "merge"},
        {"url": "sqlite:x.db", "table": "t", "mode": "upsert"},
        {"url": "sqlite:x.db", "table": "t", "key": "id"},
        {"url": "sqlite:x.db", "table": ""},
    ):
        with pytest.raises(ConfigError) as caught:
            hf.DatabaseSink(**settings)  # type: ignore[arg-type]
        assert caught.value.cure


def test_without_the_driver_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("adbc_driver"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    found = refusal(tmp_path, hf.DatabaseSink("postgresql://me:s3cret@127.0.0.1:9/db", "t"))
    assert "pip install 'holdfast[postgres]'" in str(found)


@pytest.mark.fault("SR12", "U08")
def test_passwords_are_in_no_text() -> None:
    url = "postgresql://me:p%40ss@db.example:5432/shop?sslmode=require&password=other"
    address = Address.of(url)
    sink = hf.DatabaseSink(url, "orders", "upsert", key="id")
    for text in (repr(address), address.shown, sink.describe(), address.scrubbed("p@ss p%40ss other")):
        assert not any(secret in text for secret in ("p@ss", "p%40ss", "other"))
    assert sink.describe() == "table orders of PostgreSQL at db.example:5432/shop (upsert by id)"


SQLITE = {
    "no table": (None, {}, "there is no"),
    "no column": ("id INTEGER", {}, "has no column 'name'"),
    "text into a number": ("id INTEGER, name INTEGER", {}, "cannot hold every value unchanged"),
    "a column without value": (
        "id INTEGER, name TEXT, more INTEGER NOT NULL",
        {},
        "needs a value for 'more'",
    ),
    "no key in the table": (
        "id INTEGER, name TEXT",
        {"mode": "upsert", "key": "id"},
        "no primary key or unique",
    ),
    "a second unique constraint": ("id INTEGER, name TEXT UNIQUE", {}, "UNIQUE constraint failed"),
    "null where a value is needed": ("id INTEGER, name TEXT NOT NULL", {}, "no value in 'name'"),
}


@pytest.mark.parametrize("case", SQLITE)
def test_sqlite_refuses_likewise(tmp_path: Path, case: str) -> None:
    columns, settings, told = SQLITE[case]
    rows = [(1, None), (3, "a"), (2, "a")] if "needed" in case else [(1, "a"), (2, "a")]
    with sqlite3.connect(tmp_path / "data.db") as file:
        if columns is not None:
            file.execute(f"CREATE TABLE t ({columns})")
    sink = hf.DatabaseSink(f"sqlite:{tmp_path}/data.db", "t", **settings)
    assert told in str(refusal(tmp_path, sink, rows, "id long, name string"))
    assert columns is None or file.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_sqlite_file_that_cannot_be_made(tmp_path: Path) -> None:
    assert "there is no SQLite file" in str(
        refusal(tmp_path, hf.DatabaseSink(f"sqlite:{tmp_path}/no.db", "t"))
    )
    sink = hf.DatabaseSink(f"sqlite:{tmp_path}/no/no.db", "t", create=True)
    assert "there is no SQLite file" in str(refusal(tmp_path, sink))


def test_a_column_of_a_type_that_no_database_has(postgres: PostgresServer) -> None:
    sink = hf.DatabaseSink("sqlite:x.db", "t")
    with pytest.raises(ConfigError, match="has no type"):
        sink.check_columns(pa.schema([("a", pa.null())]))
