"""Store tests run in memory-backed directories where there are any: thousands of fsyncs, and none waits for a disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import failpoints

from . import redis_server
from .redis_server import RedisServer

SHM = Path("/dev/shm")


def private_directory() -> tempfile.TemporaryDirectory[str]:
    place = SHM if os.access(SHM, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="holdfast-", dir=place)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with private_directory() as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def no_failpoint_stays_armed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture(scope="session")
def redis_program() -> str:
    found = redis_server.program()
    if found is None:
        pytest.skip(redis_server.MISSING)
    return found


@pytest.fixture(scope="session")
def shared_redis(redis_program: str) -> Iterator[RedisServer]:
    """One server for all tests that neither stop it nor change its settings; each uses a store name of its own."""
    with private_directory() as name, RedisServer(Path(name)) as server:
        yield server


@pytest.fixture
def own_redis(redis_program: str, tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may kill, starve and empty."""
    with RedisServer(tmp_path / "server") as server:
        yield server
