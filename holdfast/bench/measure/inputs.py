"""Input files of a benchmark: one file per step; a few distinct ones under as many names as a stretch needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.bench.subjects.changelog import VALUE_MAX, Totals, joined, totals_of

KEYED_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])

TIMED_SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("value", pa.int64())])
BEGIN_US = 1_790_000_000_000_000
SECOND_US = 1_000_000

OLD = 1_700_000_000
"""Seconds since 1970, before any of the files."""

Write = Callable[[Path, int], None]
"""Writes the distinct file of a number."""


class Inputs:
    """Files that both sides of a benchmark read. File *n* of a stretch has the rows of distinct file *n mod distinct*."""

    def __init__(
        self, root: Path, rows_per_file: int, distinct: int, write: Write, suffix: str = "parquet"
    ) -> None:
        self.rows_per_file = rows_per_file
        self._root = root
        self._suffix = suffix
        self._root.mkdir(parents=True, exist_ok=True)
        self.distinct = [root / f"distinct-{number:05}.{suffix}" for number in range(distinct)]
        for number, path in enumerate(self.distinct):
            write(path, number)
            # Structured Streaming reads files in the order of these times, and two may be written in one tick.
            os.utime(path, (OLD + number, OLD + number))

    def directory(self, steps: int) -> Path:
        """A directory of `steps` files; the same one each time."""
        path = self._root / f"in-{steps}"
        if not path.exists():
            path.mkdir()
            self.link(path, steps)
        return path

    def link(self, directory: Path, steps: int, prefix: str = "part") -> None:
        """Let `steps` files appear in a directory, each of them whole."""
        for number in range(steps):
            os.link(
                self.distinct[number % len(self.distinct)], directory / f"{prefix}-{number:05}.{self._suffix}"
            )


class KeyedInputs(Inputs):
    """Files of (key, value) with keys drawn at random from `keys`, and what their rows come to."""

    def __init__(self, root: Path, rows_per_file: int, keys: int, distinct: int) -> None:
        self.keys = keys
        self._totals: list[Totals] = []
        super().__init__(root, rows_per_file, distinct, self._write)

    def _write(self, path: Path, number: int) -> None:
        random = np.random.default_rng([self.keys, number])
        write_keyed(path, random.integers(0, self.keys, self.rows_per_file), random)

    def totals(self, steps: int) -> Totals:
        """What the files of a stretch come to, computed without any of the sides."""
        if not self._totals:
            self._totals = [read_totals([path], self.keys) for path in self.distinct]
        return joined((self._totals[n % len(self._totals)] for n in range(steps)), self.keys)


def write_timed(path: Path, at: Any, keys: Any, values: Any) -> None:
    """A file of TIMED_SCHEMA; `at` in microseconds."""
    columns = [pa.array(at).cast(TIMED_SCHEMA.field("at").type), pa.array(keys), pa.array(values)]
    pq.write_table(pa.Table.from_arrays(columns, schema=TIMED_SCHEMA), path)


def write_keyed(
    path: Path, keys: np.ndarray[tuple[int], np.dtype[np.int64]], random: np.random.Generator
) -> None:
    """A file with these keys and random values."""
    values = random.integers(0, VALUE_MAX, len(keys))
    pq.write_table(pa.table({"key": keys, "value": values}, schema=KEYED_SCHEMA), path)


def read_totals(files: Sequence[Path], keys: int) -> Totals:
    """What the rows of all these files come to."""
    tables = (pq.read_table(path) for path in files)
    return totals_of(((t.column("key").to_numpy(), t.column("value").to_numpy()) for t in tables), keys)


def rows_in(files: Path) -> int:
    """Rows of all files of a directory and of those below it."""
    return sum(pq.read_metadata(file).num_rows for file in files.rglob("*.parquet"))


def steps_in(files: Path) -> int:
    """Files of a directory; if it has one directory per stream, those of each."""
    below = [path for path in files.iterdir() if path.is_dir()] or [files]
    (count,) = {len(list(path.iterdir())) for path in below}
    return count
