"""Tables that somebody drops or empties between two runs: refused or told, never made anew in silence. And a server of the tests that
ends with whoever started it."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer

import holdfast as hf
from holdfast.errors import MismatchError
from holdfast.testing import run_local

Execute = Callable[[str], Any]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Execute]]:
    """URL, table, and a way to run a statement by hand."""
    if request.param == "sqlite":
        path = tmp_path / "out.db"

        def execute(statement: str) -> Any:
            with sqlite3.connect(path) as connection:
                return connection.execute(statement).fetchall()

        yield f"sqlite:{path}", "numbers", execute
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    schema = f"tampered_{os.getpid()}_{abs(hash(request.node.name)) % 10**6}"
    server.run(f"CREATE SCHEMA {schema}")
    yield (
        server.url,
        f"{schema}.numbers",
        lambda s: server.rows(s) if s.startswith("SELECT") else server.run(s),
    )
    server.run(f"DROP SCHEMA {schema} CASCADE")


def run(here: Path, url: str, table: str, rows: int, **how: Any) -> None:
    topology = hf.Topology("tampered")
    numbers = hf.Rows([(n,) for n in range(rows)], "n long", rows_per_step=5)
    stream = topology.source(numbers, name="rows").consistent(period=0.02)
    stream.sink(hf.DatabaseSink(url, table, create=True, **how), name="out")
    run_local(topology, store=f"file:{here}/store")


@pytest.mark.fault("X06")
def test_a_table_that_was_dropped_is_refused_and_not_made_anew(place: Any, tmp_path: Path) -> None:
    url, table, execute = place
    run(tmp_path, url, table, 20)
    execute(f"DROP TABLE {table}")
    for _ in range(2):
        with pytest.raises(
            MismatchError, match=r"into which epochs up to \d+ were written, is gone"
        ) as caught:
            run(tmp_path, url, table, 30)
        assert "fork" in (caught.value.cure or "")
    execute(f"CREATE TABLE {table} (n bigint)")  # somebody who knows what he does
    run(tmp_path, url, table, 30)
    assert sorted(execute(f"SELECT n FROM {table}")) == [(n,) for n in range(20, 30)]


@pytest.mark.parametrize("how", [{}, {"mode": "upsert", "key": "n"}])
@pytest.mark.fault("X06", "O08")
def test_a_table_that_was_emptied_is_told_of_once(
    place: Any, how: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, table, execute = place
    caplog.set_level(logging.WARNING, "holdfast")
    run(tmp_path, url, table, 20, **how)
    assert "none is there any more" not in caplog.text
    execute(f"DELETE FROM {table}")
    run(tmp_path, url, table, 30, **how)
    said = [r.getMessage() for r in caplog.records if "none is there any more" in r.getMessage()]
    assert len(said) == 1
    assert "20 rows were written into table" in said[0]
    assert "s3cret" not in said[0]
    assert sorted(execute(f"SELECT n FROM {table}")) == [(n,) for n in range(20, 30)]


def test_a_database_that_is_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    for rows in (10, 20):  # at least two epochs: the newest one alone could be written again
        run(tmp_path, f"sqlite:{path}", "numbers", rows)
    path.unlink()
    for _ in range(2):
        with pytest.raises(MismatchError, match=r"[12]0 rows were written .* ledger knows nothing of them"):
            run(tmp_path, f"sqlite:{path}", "numbers", 30)


def test_nothing_is_said_about_a_table_that_never_had_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    for _ in range(2):
        run(tmp_path, f"sqlite:{tmp_path}/out.db", "numbers", 0)
    assert not caplog.records


PARENT = """
import sys, time
from pathlib import Path
from holdfast.testing.postgres_server import PostgresServer
server = PostgresServer(Path(sys.argv[1]))
server.__enter__()
print(server._process.pid, flush=True)
time.sleep(600)
"""


def test_the_server_of_the_tests_ends_with_who_started_it() -> None:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    directory.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory / "server")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        os.kill(server, 0)
        parent.send_signal(signal.SIGKILL)
    patience = time.monotonic() + 60
    while Path(f"/proc/{server}").exists() or (directory / "server").exists():
        assert time.monotonic() < patience, "the server lives on"
        time.sleep(0.05)
    directory.rmdir()
