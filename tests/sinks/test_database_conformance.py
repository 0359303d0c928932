"""Database sinks pass the suite of all sinks, and show every row once wherever a run fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_server import PostgresServer

from holdfast import failpoints
from holdfast.errors import DamagedError, FencedError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import Sink, StepId
from holdfast.sinks import DatabaseSink, ForeachBatch
from holdfast.testing.sink_conformance import (
    SCHEMA,
    SINK_FAILPOINTS,
    MiniRun,
    SinkConformance,
    context,
    opened_sink,
    rows,
)


def sink_of(url: str, table: str, mode: Any = "append") -> DatabaseSink:
    sink = DatabaseSink(url, table, mode, key=None if mode == "append" else "n", create=True)
    sink.check_columns(SCHEMA)
    return sink


Query = Callable[[str], list[tuple[Any, ...]]]


class Place:
    """A table in a database, and how to look at it."""

    def __init__(self, url: str, table: str, query: Query) -> None:
        self.url, self.table, self.query = url, table, query

    def rows(self) -> list[tuple[Any, ...]]:
        if not self.is_made():
            return []
        return self.query(f"SELECT n, word FROM {self.table}")

    def is_made(self) -> bool:
        if self.url.startswith("postgresql"):
            return bool(self.query(f"SELECT 1 WHERE to_regclass('{self.table}') IS NOT NULL"))
        return bool(self.query(f"SELECT 1 FROM sqlite_master WHERE name = '{self.table}'"))

    def stages(self) -> list[str]:
        """Tables of ours that are left."""
        which = "pg_tables" if self.url.startswith("postgresql") else "sqlite_master"
        name = "tablename" if self.url.startswith("postgresql") else "name"
        found = self.query(f"SELECT {name} FROM {which} WHERE {name} LIKE 'hf%'")
        return [str(one) for (one,) in found]


@pytest.fixture(params=["postgresql", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    return postgres_place(request.getfixturevalue("postgres"), request.node.name)


def sqlite_place(directory: Path) -> Place:
    file = directory / "data.db"
    return Place(f"sqlite:{file}", "words", lambda query: sqlite3.connect(file).execute(query).fetchall())


def postgres_place(server: PostgresServer, name: str) -> Place:
    """A schema of its own."""
    schema = "t" + "".join(c if c.isalnum() else "_" for c in name.lower())[-50:]
    server.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE", f"CREATE SCHEMA {schema}")
    of_schema = f"AND schemaname = '{schema}'"
    return Place(
        server.url,
        f"{schema}.words",
        lambda query: server.rows(query + (f" {of_schema}" if "pg_tables" in query else "")),
    )


class DatabaseConformance(SinkConformance):
    mode = "append"

    @pytest.fixture(autouse=True)
    def _place(self, place: Place) -> None:
        self.place = place

    def make(self) -> Sink:
        return sink_of(self.place.url, self.place.table, self.mode)

    def visible(self) -> list[tuple[Any, ...]]:
        return self.place.rows()

    def test_no_staging_table_is_left(self) -> None:
        self.test_restore_rolls_a_published_epoch_forward_and_withdraws_the_rest()
        assert self.place.stages() == []


class TestAppended(DatabaseConformance):
    pass


class TestUpserted(DatabaseConformance):
    mode = "upsert"


@pytest.mark.parametrize("name", SINK_FAILPOINTS)
@pytest.mark.fault("X01", "X04")
def test_a_failure_at_a_failpoint_leaves_one_copy(place: Place, tmp_path: Path, name: str) -> None:
    run = MiniRun(tmp_path / "book.json", lambda: sink_of(place.url, place.table))
    before = "sink.commit.applied=raise@2;" if name.startswith("reset") else ""  # a restore worth failing in
    failpoints.arm(f"{before}{name}=raise@2")
    try:
        failures = run.run_to_the_end()
    finally:
        fired = failpoints.disarm()
    assert failures
    assert fired[name] == 1
    assert sorted(place.rows()) == sorted(run.expected())


@pytest.mark.fault("D02", "N05")
def test_a_sleeper_that_was_replaced_shows_nothing(place: Place) -> None:
    old = opened_sink(sink_of(place.url, place.table))
    old.write_arrow(rows(0), StepId(Attempt(0), 1))
    prepared = old.prepare(Epoch(1), old.seal(Epoch(1)))
    opened_sink(sink_of(place.url, place.table), token=2)
    with pytest.raises(Exception, match="newer owner"):
        old.commit(Epoch(1), prepared)
    assert place.rows() == []


def test_another_job_is_refused_and_changes_nothing(place: Place) -> None:
    first = opened_sink(sink_of(place.url, place.table))
    first.write_arrow(rows(0), StepId(Attempt(0), 1))
    first.commit(Epoch(1), first.prepare(Epoch(1), first.seal(Epoch(1))))
    with pytest.raises(Exception, match="by another job"):
        opened_sink(sink_of(place.url, place.table), job="job-2")
    assert sorted(place.rows()) == [(0, "w0"), (1, "w1")]


@pytest.mark.fault("C07")
def test_an_older_store_is_refused(place: Place) -> None:
    first = opened_sink(sink_of(place.url, place.table))
    for epoch in (1, 2):
        first.write_arrow(rows(2 * epoch), StepId(Attempt(0), epoch))
        first.commit(Epoch(epoch), first.prepare(Epoch(epoch), first.seal(Epoch(epoch))))
    with pytest.raises(Exception, match="older than the output"):
        opened_sink(sink_of(place.url, place.table), token=2, epoch=1)
    assert len(place.rows()) == 4


def test_a_table_by_its_other_name_is_the_same_table(postgres: PostgresServer) -> None:
    """A commit whose last step is missing, and a program that now writes the table's name with its schema."""
    postgres.run("DROP TABLE IF EXISTS public.renamed")
    first = opened_sink(sink_of(postgres.url, "renamed"))
    first.write_arrow(rows(0), StepId(Attempt(0), 1))
    prepared = first.prepare(Epoch(1), first.seal(Epoch(1)))
    failpoints.arm("sink.commit.applied=raise")
    try:
        with pytest.raises(failpoints.FaultInjected):
            first.commit(Epoch(1), prepared)
    finally:
        failpoints.disarm()
    opened_sink(sink_of(postgres.url, "public.renamed"), 2, 1, prepared)
    assert sorted(postgres.rows("SELECT n FROM public.renamed")) == [(0,), (1,)]


def test_another_table_does_not_get_what_waits_for_the_first(place: Place) -> None:
    first = opened_sink(sink_of(place.url, place.table))
    first.write_arrow(rows(0), StepId(Attempt(0), 1))
    first.commit(Epoch(1), first.prepare(Epoch(1), first.seal(Epoch(1))))
    first.write_arrow(rows(2), StepId(Attempt(0), 2))
    prepared = first.prepare(Epoch(2), first.seal(Epoch(2)))
    first.commit(Epoch(2), prepared)
    with pytest.raises(DamagedError, match="is gone"):
        opened_sink(sink_of(place.url, f"{place.table}_other"), 2, 2, prepared)
    assert place.query(f"SELECT count(*) FROM {place.table}_other") == [(0,)]


def test_a_program_with_other_columns_does_not_show_what_waits(place: Place) -> None:
    first = opened_sink(sink_of(place.url, place.table))
    first.write_arrow(rows(0), StepId(Attempt(0), 1))
    prepared = first.prepare(Epoch(1), first.seal(Epoch(1)))
    other = DatabaseSink(place.url, place.table)
    other.check_columns(SCHEMA.remove(1))
    with pytest.raises(DamagedError, match="waits for"):
        opened_sink(other, 2, 1, prepared)
    assert place.rows() == []
    opened_sink(sink_of(place.url, place.table), 3, 1, prepared)
    assert len(place.rows()) == 2


def test_a_stage_that_somebody_removed_is_noticed_before_anything_changes(place: Place) -> None:
    first = opened_sink(sink_of(place.url, place.table))
    first.write_arrow(rows(0), StepId(Attempt(0), 1))
    prepared = first.prepare(Epoch(1), first.seal(Epoch(1)))
    first._backend.drop([prepared["staged"]])
    again = sink_of(place.url, place.table)
    again.open(context(2))
    with pytest.raises(DamagedError, match="is gone"):
        again.verify(Epoch(1), prepared)
    assert again.is_withheld(Epoch(1), prepared), "a run may go on from the epoch before"


class TestInTransaction(SinkConformance):
    """The helper for other databases, here with a driver from the standard library."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.directory / "data.db")
        connection.execute("CREATE TABLE IF NOT EXISTS words (n INTEGER, word TEXT)")
        return connection

    def write(self, connection: sqlite3.Connection, table: pa.Table) -> None:
        values = zip(*(column.to_pylist() for column in table.columns), strict=True)
        connection.cursor().executemany("INSERT INTO words VALUES (?, ?)", values)

    def make(self) -> Sink:
        return ForeachBatch.in_transaction(self.connect, self.write, staging=str(self.directory / "staging"))

    def visible(self) -> list[tuple[Any, ...]]:
        return self.connect().execute("SELECT n, word FROM words").fetchall()

    @pytest.mark.parametrize("name", SINK_FAILPOINTS)
    @pytest.mark.fault("X01", "X04")
    def test_a_failure_at_a_failpoint_leaves_one_copy(self, name: str) -> None:
        run = MiniRun(self.directory / "book.json", self.make)
        before = "sink.commit.applied=raise@2;" if name.startswith("reset") else ""
        failpoints.arm(f"{before}{name}=raise@2")
        try:
            assert run.run_to_the_end()
        finally:
            assert failpoints.disarm()[name] == 1
        self.shows(run.expected())

    def test_a_function_that_fails_leaves_nothing(self) -> None:
        sink = self.opened()
        prepared = self.epoch(sink, 1, rows(0))
        good, self.write = self.write, self.fail  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            opened_sink(self.make(), 2, 1, prepared)
        self.shows([])
        self.write = good  # type: ignore[method-assign]
        opened_sink(self.make(), 3, 1, prepared)
        self.shows([(0, "w0"), (1, "w1")])

    def fail(self, connection: sqlite3.Connection, table: pa.Table) -> None:
        connection.execute("INSERT INTO words VALUES (7, 'half')")
        raise RuntimeError("on purpose")

    @pytest.mark.fault("D02", "N05")
    def test_a_sleeper_that_was_replaced_shows_nothing(self) -> None:
        old = self.opened()
        prepared = self.epoch(old, 1, rows(0))
        self.opened(2)
        with pytest.raises(FencedError):
            old.commit(Epoch(1), prepared)
        self.shows([])
