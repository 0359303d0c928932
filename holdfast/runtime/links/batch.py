"""Handles of rows that travel between elements. Rows themselves stay in files."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.durable import remove_quietly

TIMES_SUFFIX = "-times.parquet"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows materialised as Parquet files. Immutable; the same rows whoever reads them. There may be no rows, but times."""

    files: tuple[str, ...]
    rows: int
    bytes: int
    hold: Hold = field(compare=False, repr=False)
    skip: int = 0
    """Rows at the beginning that were processed before and are not among `rows`."""

    @property
    def row_files(self) -> tuple[str, ...]:
        return tuple(file for file in self.files if not file.endswith(TIMES_SUFFIX))

    @property
    def time_files(self) -> tuple[str, ...]:
        """Files with the times beside the rows: how far event time was at some positions."""
        return tuple(file for file in self.files if file.endswith(TIMES_SUFFIX))

    def behind(self, done: int) -> Batch:
        """The same without its first `done` rows."""
        return replace(self, rows=self.rows - done, skip=self.skip + done)


class Hold:
    """Counts who still needs a batch's files; the last one to let go removes them. Thread-safe."""

    def __init__(self, files: tuple[str, ...], directory: Path | None = None) -> None:
        self._files = files
        self._directory = directory
        self._holders = 1
        self._lock = threading.Lock()

    def take(self) -> None:
        with self._lock:
            self._holders += 1

    def let_go(self) -> None:
        with self._lock:
            self._holders -= 1
            last = self._holders == 0
        if not last:
            return
        for file in self._files:
            remove_quietly(file)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class Holds(Hold):
    """Several that are taken and let go of together."""

    def __init__(self, holds: tuple[Hold, ...]) -> None:
        super().__init__(())
        self._holds = holds

    def take(self) -> None:
        for hold in self._holds:
            hold.take()

    def let_go(self) -> None:
        for hold in self._holds:
            hold.let_go()


def batch_of(files: list[Path], rows: int, directory: Path | None = None) -> Batch:
    """A batch over finished files, held once (by whoever made it). `directory` goes with the last file."""
    names = tuple(str(f) for f in files)
    return Batch(names, rows, sum(f.stat().st_size for f in files), Hold(names, directory))
