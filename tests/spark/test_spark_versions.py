"""What older versions of Spark lack: the detours give what the newest version gives, or it is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from holdfast.errors import ConfigError
from holdfast.log.log import Log
from holdfast.runtime.engines.spark import anchors
from holdfast.sources.logs import spark_versions
from holdfast.sources.logs.from_spark import SparkStream
from holdfast.sources.logs.spark_format import LogFormat, StreamReader, WholeStreamReader


def test_the_hash_is_that_of_spark() -> None:
    assert [anchors.hash_of(n) for n in (0, 1, 2)] == [933211791, -559580957, 1765031574]


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 7])
def test_rows_come_to_the_partition_whose_number_they_carry(
    spark: Any, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "HAS_NUMBERS", False)
    frame = spark.range(partitions * 5).select((F.col("id") % partitions).cast("int").alias("p"))
    routed = anchors.by_number(frame, partitions, "p")
    assert routed.rdd.getNumPartitions() == partitions
    found = routed.select("p", F.spark_partition_id().alias("at")).distinct().collect()
    assert sorted((row.p, row.at) for row in found) == [(p, p) for p in range(partitions)]


def test_streams_without_limits_take_all_that_counts_and_refuse_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log", schema=pa.schema([("n", pa.int64())]))
    log.writer("w").append(pa.table({"n": [1, 2, 3]}), wait=True)
    log.close()
    monkeypatch.setattr("holdfast.sources.logs.spark_format.HAS_LIMITS", False)
    reader = LogFormat({"path": str(tmp_path / "log")}).streamReader(None)  # type: ignore[arg-type]
    assert isinstance(reader, WholeStreamReader)
    assert (reader.initialOffset(), reader.latestOffset()) == ({"0": 0}, {"0": 3})
    limited = LogFormat({"path": str(tmp_path / "log"), "maxRowsPerTrigger": "2"})
    with pytest.raises(ConfigError, match=r"needs Spark 4\.2"):
        limited.streamReader(None)  # type: ignore[arg-type]
    monkeypatch.setattr("holdfast.sources.logs.spark_format.HAS_LIMITS", True)
    assert type(limited.streamReader(None)) is StreamReader  # type: ignore[arg-type]


def test_a_stream_into_a_log_is_refused_where_spark_has_no_writer_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_versions, "HAS_ARROW_STREAMS", False)
    with pytest.raises(ConfigError, match=r"needs Spark 4\.1"):
        LogFormat({"path": str(tmp_path), "writer": "w"}).streamWriter(None, False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"needs Spark 4\.1"):
        SparkStream(None, tmp_path, {}, 1000)  # type: ignore[arg-type]
