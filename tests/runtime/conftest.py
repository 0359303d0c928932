"""Places for runs in fast memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import campaign
import pytest

from holdfast.sinks.memory import MemorySink


@pytest.fixture(scope="session")
def fast_directory() -> Iterator[Path]:
    """A directory in memory where there is one. Killing processes does not need a disk: what they wrote is in the
    page cache either way. The tests of `durable` look after power cuts."""
    shared = Path("/dev/shm")
    where = str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=where))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a MemorySink's shelf, emptied behind the test."""
    yield request.node.name
    MemorySink.clear(request.node.name)


@pytest.fixture(scope="session")
def orders(fast_directory: Path) -> Path:
    return campaign.make_input(fast_directory / "orders")


@pytest.fixture
def place(fast_directory: Path, orders: Path, request: pytest.FixtureRequest) -> Iterator[campaign.Place]:
    root = Path(tempfile.mkdtemp(prefix="run-", dir=fast_directory))
    yield campaign.Place(orders, root)
    shutil.rmtree(root, ignore_errors=True)
