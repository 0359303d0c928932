"""The PostgreSQL server of the tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.postgres_server import MISSING, PostgresServer, is_there

__all__ = ["PostgresServer"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process, with nothing in it but what they make: each in a schema of its own."""
    if not is_there():
        pytest.fail(f"tests of PostgreSQL cannot run: {MISSING}")
    # Not below pytest's own directory, which only its user may enter.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    directory.chmod(0o755)
    try:
        with PostgresServer(directory / "server") as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)
