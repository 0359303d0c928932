"""Directories of tests lie in memory where there is enough of it: tens of thousands of fsyncs, and none waits for a disk.

No test needs a disk: killing processes leaves what they wrote in the page cache either way, the tests of `durable` look after
power cuts, and those of full or read-only disks mount their own. PYTEST_DEBUG_TEMPROOT=/tmp names another place. What a
passed test wrote is removed behind it; what a failed one wrote stays until the next run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOT = "PYTEST_DEBUG_TEMPROOT"
NEEDED_BYTES = 2 << 30
"""Several times what a whole run writes."""


def pytest_configure(config: pytest.Config) -> None:
    """Processes of xdist get their places from the one that starts them."""
    if ROOT not in os.environ and has_room(MEMORY):
        os.environ[ROOT] = str(MEMORY)


def has_room(place: Path) -> bool:
    if not (place.is_dir() and os.access(place, os.W_OK)):
        return False
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize >= NEEDED_BYTES
