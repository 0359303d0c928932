"""Every source passes the same suite."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.language.connectors import Source
from holdfast.sources import Beacon, Files, Rows
from holdfast.testing.source_conformance import SourceConformance

SCHEMA = "id long, word string"
ROWS = [(i, f"w{i % 3}") for i in range(23)]
PARTS = (ROWS[:7], ROWS[7:8], [], ROWS[8:20], ROWS[20:])


class TestRows(SourceConformance):
    def make(self, rows_per_step: int | None) -> Source:
        return Rows(ROWS, SCHEMA, **({} if rows_per_step is None else {"rows_per_step": rows_per_step}))

    def expected(self) -> list[tuple[Any, ...]]:
        return ROWS


class TestBeacon(SourceConformance):
    def make(self, rows_per_step: int | None) -> Source:
        return Beacon(rows=23, rows_per_step=rows_per_step or 100_000)


class TestPacedBeacon(SourceConformance):
    def make(self, rows_per_step: int | None) -> Source:
        return Beacon(rows=23, rate=50_000, rows_per_step=rows_per_step or 100_000)


class FilesConformance(SourceConformance):
    format = "csv"

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.directory = tmp_path
        for number, rows in enumerate(PARTS):
            self.write(tmp_path / f"part{number}", rows)
        (tmp_path / "_SUCCESS").write_text("")
        (tmp_path / ".hidden.csv").write_text("nonsense")

    def write(self, path: Path, rows: list[tuple[int, str]]) -> None:
        raise NotImplementedError

    def make(self, rows_per_step: int | None) -> Source:
        return Files(str(self.directory), self.format, SCHEMA, max_rows_per_step=rows_per_step)  # type: ignore[arg-type]

    def expected(self) -> list[tuple[Any, ...]]:
        return ROWS


def csv_text(rows: list[tuple[int, str]]) -> str:
    return "id,word\n\n" + "".join(f"{a},{b}\n" for a, b in rows)


class TestCsv(FilesConformance):
    def write(self, path: Path, rows: list[tuple[int, str]]) -> None:
        path.with_suffix(".csv").write_text(csv_text(rows).rstrip("\n"))


class TestGzippedCsv(FilesConformance):
    def write(self, path: Path, rows: list[tuple[int, str]]) -> None:
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(csv_text(rows).encode()))


class TestJson(FilesConformance):
    format = "json"

    def write(self, path: Path, rows: list[tuple[int, str]]) -> None:
        path.with_suffix(".json").write_text("\r\n".join(f'{{"id": {a}, "word": "{b}"}}\n' for a, b in rows))


class TestParquet(FilesConformance):
    format = "parquet"

    def write(self, path: Path, rows: list[tuple[int, str]]) -> None:
        table = pa.table({"id": pa.array([r[0] for r in rows], pa.int64()), "word": [r[1] for r in rows]})
        table = table.cast(pa.schema([("id", pa.int64()), ("word", pa.string())]))
        pq.write_table(table, path.with_suffix(".parquet"), row_group_size=5)


class TestText(FilesConformance):
    format = "text"

    def write(self, path: Path, rows: list[tuple[int, str]]) -> None:
        path.with_suffix(".txt").write_text("".join(f"{a} {b}\n" for a, b in rows) + "\n")

    def expected(self) -> list[tuple[Any, ...]]:
        return [(line,) for part in PARTS for line in [*(f"{a} {b}" for a, b in part), ""]]


class TestBytesLimit(TestCsv):
    def make(self, rows_per_step: int | None) -> Source:
        size = None if rows_per_step is None else 6 * rows_per_step
        return Files(str(self.directory / "*.csv"), "csv", SCHEMA, max_bytes_per_step=size)


class TestFilesLimit(TestCsv):
    def make(self, rows_per_step: int | None) -> Source:
        return Files(str(self.directory), "csv", SCHEMA, max_files_per_step=rows_per_step)
