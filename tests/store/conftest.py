"""Store tests run in memory-backed directories where there are any: thousands of fsyncs, and none waits for a disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import failpoints

SHM = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    place = SHM if os.access(SHM, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=place) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def no_failpoint_stays_armed() -> Iterator[None]:
    yield
    failpoints.disarm()
