"""Columns get a dictionary where their values repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.sinks.encoding import FEW_ROWS, dictionary_columns
from holdfast.sinks.task_files import ParquetTaskWriter

ROWS = 50_000


def table() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "unique": random.permutation(ROWS),
            "few": random.integers(0, 10, ROWS),
            "sorted": np.repeat(np.arange(ROWS // 10), 10),
            "text": pa.array(np.char.mod("text-%d", random.integers(0, 3000, ROWS))),
            "none": pa.nulls(ROWS, pa.int64()),
        }
    )


def test_columns_whose_values_repeat_are_found() -> None:
    assert dictionary_columns(table()) == ["few", "sorted", "text", "none"]


def test_few_rows_and_nested_columns_are_left_to_the_writer() -> None:
    assert dictionary_columns(table().slice(0, FEW_ROWS - 1)) is True
    nested = table().append_column("list", pa.array([[1]] * ROWS))
    assert dictionary_columns(nested) is True


def test_where_all_columns_repeat_nothing_changes() -> None:
    assert dictionary_columns(table().select(["few", "text"])) is True


def test_files_are_smaller_and_read_the_same(tmp_path: Path) -> None:
    rows = table()
    name = ParquetTaskWriter(str(tmp_path), "snappy")(rows, 0, 0)
    assert name is not None
    pq.write_table(rows, tmp_path / "plain.parquet", compression="snappy")
    assert pq.read_table(tmp_path / name).equals(rows)
    assert (tmp_path / name).stat().st_size < (tmp_path / "plain.parquet").stat().st_size
