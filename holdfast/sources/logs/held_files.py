"""Parquet segments that DataFrames of this process refer to: merges and retention must not take them away meanwhile.

    tmp/query-<pid>-<random>/lock                      locked for as long as the process lives
    tmp/query-<pid>-<random>/<partition>/<segment>     another name (hard link) of a segment

A DataFrame is read when somebody needs its rows, perhaps minutes after it was made. A second name of a file costs nothing, and the
file is there until the name goes: after an hour without a query that needs it, at the end of the process, or, if that died, with the
next query of anybody. Where no second name can be made, the segment is read by its own: if it goes, Spark says so.
"""

from __future__ import annotations

import atexit
import io
import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast import durable
from holdfast.store import locks, sealed_file
from holdfast.store.files import lease

PREFIX = "query-"
LOCK = "lock"
HELD_S = 3600.0

_lock = threading.Lock()
_held: dict[str, HeldFiles] = {}


class HeldFiles:
    """The second names that this process has for segments of one log."""

    def __init__(self, root: Path) -> None:
        self.pid = os.getpid()
        self._directory, self._file = _locked_directory(root / lease.TMP)
        self._used: dict[Path, float] = {}
        atexit.register(self.close)

    @property
    def is_there(self) -> bool:
        """False in a fork, and if somebody removed the log and made another one at its place."""
        return self.pid == os.getpid() and (self._directory / LOCK).exists()

    def hold(self, path: Path, now: float) -> Path:
        name = self._directory / path.parent.name / path.name
        if name not in self._used:
            name.parent.mkdir(exist_ok=True)
            os.link(path, name)
        self._used[name] = now
        return name

    def let_go_before(self, moment: float) -> None:
        for name in [name for name, used in self._used.items() if used < moment]:
            del self._used[name]
            durable.remove_quietly(name)

    def close(self) -> None:
        if self.pid == os.getpid():
            self._file.close()
            lease.remove_tree(self._directory)


def hold(root: str, paths: Sequence[str]) -> list[str]:
    """Names under which these segments stay readable. FileNotFoundError: one is gone already."""
    now = time.monotonic()
    with _lock:
        try:
            held = _held.get(root)
            if held is None or not held.is_there:
                held = _held[root] = HeldFiles(Path(root))
            names = [str(held.hold(Path(path), now)) for path in paths]
        except FileNotFoundError:
            raise
        except OSError:
            return list(paths)
        held.let_go_before(now - HELD_S)
    sweep(Path(root))
    return names


def sweep(root: Path) -> None:
    """Remove what processes left that died."""
    for name in sealed_file.list_directory(root / lease.TMP):
        directory = root / lease.TMP / name
        if name.startswith(PREFIX) and not locks.is_held(directory / LOCK):
            lease.remove_tree(directory)


def _locked_directory(place: Path) -> tuple[Path, io.FileIO]:
    """It gets its name when it is locked: whoever sees the name sees the lock."""
    unfinished = place / f"new-{secrets.token_hex(8)}"
    unfinished.mkdir(parents=True)
    with locks.new_lock(unfinished, b"") as (temporary, file):
        os.rename(temporary, unfinished / LOCK)
        directory = place / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        os.rename(unfinished, directory)
        return directory, file
