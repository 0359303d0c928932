"""Columns get a dictionary where their values repeat; other whole numbers are stored as differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from holdfast.durable import checksum_file
from holdfast.sinks.encoding import DEFAULT, FEW_ROWS, encodings
from holdfast.sinks.task_files import ParquetTaskWriter

ROWS = 50_000


def table() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "unique": random.permutation(ROWS),
            "far": random.permutation(ROWS) * (1 << 45),
            "few": random.integers(0, 10, ROWS),
            "sorted": np.repeat(np.arange(ROWS // 10), 10),
            "text": pa.array(np.char.mod("text-%d", random.integers(0, 3000, ROWS))),
            "none": pa.nulls(ROWS, pa.int64()),
        }
    )


def test_each_column_gets_what_suits_it() -> None:
    found = encodings(table())
    assert found["use_dictionary"] == ["few", "sorted", "text", "none"]
    assert found["column_encoding"] == {"unique": "DELTA_BINARY_PACKED"}


def test_few_rows_and_nested_columns_are_left_to_the_writer() -> None:
    assert encodings(table().slice(0, FEW_ROWS - 1)) == DEFAULT
    nested = table().append_column("list", pa.array([[1]] * ROWS))
    assert encodings(nested) == DEFAULT


def test_where_all_columns_repeat_nothing_changes() -> None:
    assert encodings(table().select(["few", "text"])) == DEFAULT


def test_files_are_smaller_and_read_the_same(tmp_path: Path, spark: SparkSession) -> None:
    rows = table()
    (written,) = ParquetTaskWriter(str(tmp_path), "snappy")(rows, 0, 0)
    path = (tmp_path / written.name).rename(tmp_path / "shown.parquet")
    pq.write_table(rows, tmp_path / "plain.parquet", compression="snappy")
    assert pq.read_table(path).equals(rows)
    assert path.stat().st_size < (tmp_path / "plain.parquet").stat().st_size
    frame = spark.read.parquet(str(path))
    assert frame.toArrow().sort_by("unique").equals(rows.cast(frame.toArrow().schema).sort_by("unique"))
    assert (
        frame.agg({"far": "max", "unique": "sum"}).collect()
        == spark.read.parquet(str(tmp_path / "plain.parquet")).agg({"far": "max", "unique": "sum"}).collect()
    )


def test_a_task_tells_the_checksum_of_what_it_wrote(tmp_path: Path) -> None:
    (written,) = ParquetTaskWriter(str(tmp_path), "snappy")(table(), 3, 7)
    assert written is not None
    assert (written.crc, written.size) == checksum_file(tmp_path / written.name)
    assert ParquetTaskWriter(str(tmp_path), "snappy")(table().slice(0, 0), 3, 8) == []
