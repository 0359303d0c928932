"""Places in memory where there are any, and no failpoint left armed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from books import Books

from holdfast import failpoints


@pytest.fixture
def here() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=where) as name:
        yield Path(name)


@pytest.fixture
def books(here: Path) -> Books:
    return Books(here)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
