"""Live directories: volatile files of one run. Each is locked by its run; those of dead runs are swept away.

Nobody ever reads the live files of an earlier run, so all that a killed driver leaves behind is space.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "holdfast-live-"
LOCK = ".lock"
ENV = "HOLDFAST_LIVE_DIR"


class LiveDirectoryLock:
    """A fresh live directory and the lock that says its run is alive. `release` removes both."""

    def __init__(self, root: str | None = None) -> None:
        place = root or os.environ.get(ENV) or tempfile.gettempdir()
        sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sweep(place: str) -> int:
    """Remove live directories whose runs are dead; returns how many. One being made (no lock yet) is left alone."""
    removed = 0
    for path in Path(place).glob(f"{PREFIX}*"):
        try:
            fd = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
        except OSError:
            pass  # its run is alive
        finally:
            os.close(fd)
    return removed
