"""Live directories: volatile files of one run. Each is locked by its run; those of dead runs are swept away.

Nobody ever reads the live files of an earlier run, so all that a killed driver leaves behind is space.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "holdfast-live-"
LOCK = ".lock"
ENV = "HOLDFAST_LIVE_DIR"
BEING_MADE = f".{PREFIX}"
"""Until its lock is held a directory has a name that no sweep looks for, unless it is as old as nothing under way is."""
OLD_S = 3600.0


class LiveDirectoryLock:
    """A fresh live directory (0700) and the lock that says its run is alive. `release` removes both."""

    def __init__(self, root: str | None = None) -> None:
        place = root or os.environ.get(ENV) or tempfile.gettempdir()
        sweep(place)
        made = Path(tempfile.mkdtemp(prefix=BEING_MADE, dir=place))
        self._fd = os.open(made / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.path = made.with_name(made.name[1:])
        os.rename(made, self.path)

    def release(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sweep(place: str) -> int:
    """Remove live directories whose runs are dead; returns how many. Those of other users are left alone."""
    return sum(_is_swept(path) for path in Path(place).glob(f"{PREFIX}*")) + _sweep_unfinished(place)


def _is_swept(path: Path) -> bool:
    try:
        if path.lstat().st_uid != os.geteuid():
            return False
        fd = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
        return True
    except OSError:
        return False  # its run is alive
    finally:
        os.close(fd)


def _sweep_unfinished(place: str) -> int:
    """Those whose makers died before they were made."""
    removed = 0
    for path in Path(place).glob(f"{BEING_MADE}*"):
        try:
            found = path.lstat()
        except OSError:
            continue
        if found.st_uid == os.geteuid() and found.st_mtime < time.time() - OLD_S:
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed
