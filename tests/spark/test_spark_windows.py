"""Event-time windows on Spark, with and without a shuffle, against Spark's own window function over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.language.operators.values import TimeWindow
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark import keyed
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

ROWS = 4_000
BEGIN_US = 1_790_000_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Rows up to two seconds out of order, a hundred per second; the last ones push the watermark past all others."""
    random = np.random.default_rng(11)
    times = BEGIN_US + np.arange(ROWS) * 10_000 + random.integers(-2_000_000, 1, ROWS)
    times[-1] += 60_000_000
    directory = tmp_path / "in"
    directory.mkdir()
    for number, chosen in enumerate(np.array_split(np.arange(ROWS), 5)):
        table = pa.table(
            {
                "at": pa.array(times[chosen]).cast(pa.timestamp("us", tz="UTC")),
                "k": pa.array([f"k{n}" for n in random.integers(0, 9, len(chosen))]),
                "v": random.integers(0, 100, len(chosen)),
            }
        )
        pq.write_table(table, directory / f"part-{number}.parquet")
    return directory


TENS = hf.sliding(10, 5, on="at", delay=2)


def windowed(stream: Stream, window: TimeWindow = TENS) -> Stream:
    return stream.aggregate("k", window=window, n=hf.count(), total=hf.sum("v"), top=hf.max("v"), name="w")


def read(topology: Topology, files: Path) -> Stream:
    source = hf.Files(str(files), "parquet", "at timestamp, k string, v long", max_rows_per_step=790)
    return topology.source(source, name="in").consistent(period=0.3)


def by_spark(spark: Any, files: Path, condition: str = "true") -> list[dict[str, Any]]:
    """All windows but those the last row lies in: these never end."""
    rows = spark.read.parquet(str(files)).filter(condition)
    last = rows.agg(F.max("at")).collect()[0][0]
    grouped = rows.groupBy(F.window("at", "10 seconds", "5 seconds"), "k").agg(
        F.count("*").alias("n"), F.sum("v").alias("total"), F.max("v").alias("top")
    )
    flat = grouped.select("window.start", "window.end", "k", "n", "total", "top")
    names = ("window_start", "window_end", "k", "n", "total", "top")
    return [
        dict(zip(names, row, strict=True))
        for row in flat.filter(F.col("end") <= F.lit(last) - F.expr("interval 2 seconds")).collect()
    ]


def naive(rows: Any) -> list[dict[str, Any]]:
    """Arrow's times carry their zone, Spark's are local: UTC in these tests."""
    return [
        {
            name: value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value
            for name, value in row.items()
        }
        for row in rows
    ]


@pytest.mark.sampled
@pytest.mark.usefixtures("shuffled")
def test_windows_hold_what_sparks_own_hold(on_spark: Any, spark: Any, files: Path) -> None:
    got = on_spark(lambda t: windowed(read(t, files)))
    compare_rows(naive(by_spark(spark, files)), naive(got.to_pylist()))
    counts = [element["counts"] for element in on_spark.status["elements"].values()]
    assert counts == [{}], "nothing was late"


def test_windows_behind_stateless_operators_take_their_positions_along(
    on_spark: Any, spark: Any, files: Path
) -> None:
    got = on_spark(
        lambda t: windowed(read(t, files).with_columns(v="v + 1").filter("k <> 'k3'").with_columns(v="v - 1"))
    )
    compare_rows(naive(by_spark(spark, files, "k <> 'k3'")), naive(got.to_pylist()))


def test_both_ways_agree_on_what_is_late(on_spark: Any, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(topology: Topology) -> Stream:
        return windowed(read(topology, files), hf.tumbling(1, on="at", delay=0.1))

    short = on_spark(build)
    counted = [element["counts"] for element in on_spark.status["elements"].values()]
    monkeypatch.setattr(keyed, "UNSHUFFLED_PARTITIONS", 0)
    shuffled = on_spark(build)
    assert [element["counts"] for element in on_spark.status["elements"].values()] == counted
    assert counted[0]["w"]["late"] > 0
    compare_rows(short.to_pylist(), shuffled.to_pylist())
