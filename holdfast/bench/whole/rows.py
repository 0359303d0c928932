"""Inputs of whole runs: many rows of (key, value) as Parquet, CSV or JSON lines, and what they come to.

The rows of a file follow from its number alone, so what they come to is computed without reading any file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from holdfast.bench.measure.inputs import KEYED_SCHEMA, Inputs
from holdfast.bench.subjects.changelog import I64, VALUE_MAX, Totals, joined, totals_of

Format = Literal["parquet", "csv", "json"]

ROWS = 30_000_000
ROWS_PER_FILE = 1_000_000
FILES_MIN = 10
"""Smaller inputs have smaller files rather than fewer: else a trigger of ten files would be no other than one of all."""
WARM_UP_SHARE = 1 / 3
DISTINCT = 8


@dataclass(frozen=True)
class Size:
    """How much is read, and before it, where a process warms up, how many other files of as many rows each."""

    files: int
    rows_per_file: int
    warm_up_files: int

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file

    @property
    def distinct(self) -> int:
        return min(DISTINCT, self.files)


def size_of(scale: float) -> Size:
    """1: as documented."""
    rows = ROWS * scale
    files = max(FILES_MIN, round(rows / ROWS_PER_FILE))
    return Size(files, max(1, round(rows / files)), math.ceil(files * WARM_UP_SHARE))


class WholeInputs(Inputs):
    """Files of one format. `seed` tells inputs apart: those of the warm-up have other rows."""

    def __init__(self, root: Path, format: Format, keys: int, size: Size, seed: int = 0) -> None:
        self.keys = keys
        self.format: Format = format
        self._seed = seed
        self._totals: dict[bool, list[Totals]] = {}
        super().__init__(root, size.rows_per_file, size.distinct, self._write, suffix=format)

    def rows_of(self, number: int) -> tuple[I64, I64]:
        """Keys and values of a distinct file."""
        random = np.random.default_rng([self.keys, self._seed, number])
        keys = random.integers(0, self.keys, self.rows_per_file)
        return keys, random.integers(0, VALUE_MAX, self.rows_per_file)

    def _write(self, path: Path, number: int) -> None:
        write_rows(path, self.format, *self.rows_of(number))

    def totals(self, files: int, expressions: bool) -> Totals:
        """What so many files come to, computed without any of the sides."""
        if expressions not in self._totals:
            parts = (self._kept(number, expressions) for number in range(len(self.distinct)))
            self._totals[expressions] = [totals_of([part], self.keys) for part in parts]
        totals = self._totals[expressions]
        return joined((totals[n % len(totals)] for n in range(files)), self.keys)

    def _kept(self, number: int, expressions: bool) -> tuple[I64, I64]:
        keys, values = self.rows_of(number)
        return after_expressions(keys, values) if expressions else (keys, values)


def after_expressions(keys: I64, values: I64) -> tuple[I64, I64]:
    """What `sides.CONDITION` and `sides.VALUE` leave, in NumPy's words."""
    kept = meets_condition(values)
    return keys[kept], values[kept] * 2 + 1


def meets_condition(values: I64) -> npt.NDArray[np.bool_]:
    """`sides.CONDITION`, in NumPy's words."""
    return np.not_equal(values % 7, 3)


def write_rows(path: Path, format: Format, keys: I64, values: I64) -> None:
    """A file of these rows."""
    table = pa.table({"key": keys, "value": values}, schema=KEYED_SCHEMA)
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "csv":
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(quoting_style="none"))
    else:
        with path.open("w") as file:
            file.writelines(_json_lines(keys, values))


def _json_lines(keys: I64, values: I64) -> Iterator[str]:
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        yield f'{{"key":{key},"value":{value}}}\n'
