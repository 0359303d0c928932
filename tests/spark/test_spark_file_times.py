"""Times in Parquet files are microseconds, whoever wrote the rows and whatever the user's session says; the session is as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.runtime.engines.spark.session import FILE_TIMES, MICROSECONDS, TimesAsMicroseconds


@pytest.fixture
def own(spark: Any) -> Iterator[Any]:
    """A session as Spark makes it."""
    before = spark.conf.get(FILE_TIMES)
    spark.conf.set(FILE_TIMES, "INT96")
    yield spark
    spark.conf.set(FILE_TIMES, before)


def kinds(output: Path) -> set[str]:
    return {
        column.physical_type
        for path in hf.FileSink.files(output)
        for column in pq.ParquetFile(path).schema
        if column.name == "at"
    }


@pytest.mark.spark
def test_times_are_microseconds_whatever_the_session_says(own: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = "".join(f'{{"k": {n % 7}, "at": "2026-01-01 00:00:{n % 60:02}"}}\n' for n in range(40_000))
    (tmp_path / "in" / "a.json").write_text(lines)
    topology = hf.Topology("times")
    source = hf.Files(tmp_path / "in", "json", "k long, at timestamp")
    rows = topology.source(source, name="rows").consistent("r")
    rows.sql("select k, at + interval 1 day at from this").sink(
        hf.FileSink(tmp_path / "by_spark", "parquet"), name="by_spark"
    )
    rows.aggregate("k", at=hf.max("at"), name="last").sink(
        hf.FileSink(tmp_path / "by_tasks", "parquet"), name="by_tasks"
    )
    topology.run(own, store=str(tmp_path / "store"), until="available")
    assert kinds(tmp_path / "by_spark") == kinds(tmp_path / "by_tasks") == {"INT64"}
    assert own.conf.get(FILE_TIMES) == "INT96"


@pytest.mark.spark
def test_the_last_of_several_runs_puts_back_what_was_there(own: Any) -> None:
    first, second = TimesAsMicroseconds(own), TimesAsMicroseconds(own)
    first.release()
    first.release()
    assert own.conf.get(FILE_TIMES) == MICROSECONDS
    second.release()
    assert own.conf.get(FILE_TIMES) == "INT96"
