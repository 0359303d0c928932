"""Joins on Spark, with and without a shuffle, against Spark's own batch joins and pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

BEGIN_US, STEP_US, ROWS = 1_790_000_000_000_000, 10_000, 1_000


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, pa.Table]:
    """Two streams in the order of their times, a closing row at the end of each."""
    random = np.random.default_rng(9)
    made = {}
    for name, value in (("left", "v"), ("right", "w")):
        times = BEGIN_US + np.arange(ROWS) * STEP_US + random.integers(0, STEP_US, ROWS)
        times[-1] += 60_000_000
        keys = [f"k{n}" if n else None for n in random.integers(0, 9, ROWS)]
        keys[-1] = f"end-{name}"
        made[name] = pa.table(
            {
                "at": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
                "k": pa.array(keys),
                value: np.arange(ROWS),
            }
        )
        (tmp_path / name).mkdir()
        for part in range(2):
            piece = made[name].slice(part * ROWS // 2, ROWS // 2)
            pq.write_table(piece, tmp_path / name / f"part-{part}.parquet")
    return made


def streams(topology: Topology, here: Path) -> tuple[Stream, Stream]:
    found = []
    for name, value, rows in (("left", "v", 270), ("right", "w", 190)):
        source = hf.Files(
            str(here / name), "parquet", f"at timestamp, k string, {value} long", max_rows_per_step=rows
        )
        found.append(topology.source(source, name=name).consistent(name="region", period=0.3))
    return found[0], found[1]


@pytest.mark.sampled
@pytest.mark.usefixtures("shuffled")
def test_an_interval_join_gives_what_sparks_own_join_gives(
    on_spark: Any, spark: Any, tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    def build(topology: Topology) -> Stream:
        left, right = streams(topology, tmp_path)
        return left.filter("v <> 3").join(
            right, "k", within=(0.2, 0.1), on="at", how="left", name="j", delay=0
        )

    found = on_spark(build).to_pylist()
    left = spark.read.parquet(str(tmp_path / "left")).filter("v <> 3 and k <> 'end-left' or k is null")
    right = spark.read.parquet(str(tmp_path / "right")).withColumnRenamed("at", "at_right")
    wanted = left.join(right.withColumnRenamed("k", "other"), on=_near(), how="left").drop("other")
    compare_rows(wanted.select("at", "k", "v", "at_right", "w").toArrow().to_pylist(), found)


def _near() -> Any:
    from pyspark.sql import functions as F

    apart = F.unix_micros("at_right") - F.unix_micros("at")
    return (F.col("k") == F.col("other")) & apart.between(-200_000, 100_000)


@pytest.mark.sampled
@pytest.mark.usefixtures("shuffled")
def test_an_asof_join_gives_what_pandas_gives_and_windows_may_follow(
    on_spark: Any, tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    def build(topology: Topology) -> Stream:
        left, right = streams(topology, tmp_path)
        joined = left.asof_join(right, "k", on="at", tolerance=0.5, name="j", delay=0)
        return joined.aggregate(
            "k", window=hf.tumbling(1, on="at", delay=0), w=hf.sum("w"), n=hf.count(), name="sums"
        )

    found = on_spark(build).to_pandas()
    left, right = (tables[name].to_pandas().dropna(subset="k") for name in ("left", "right"))
    merged = pd.merge_asof(left, right, on="at", by="k", tolerance=pd.Timedelta(0.5, "s"))
    merged["window_start"] = merged["at"].dt.floor("s")
    wanted = merged.groupby(["window_start", "k"]).agg(w=("w", "sum"), n=("v", "count")).reset_index()
    ended = wanted["window_start"] < found["window_start"].max()
    both = found.dropna(subset="k").merge(wanted[ended], on=["window_start", "k"], suffixes=("", "_wanted"))
    assert len(both) == ended.sum() > 50
    assert (both["n"] == both["n_wanted"]).all()
    assert (both["w"].fillna(0) == both["w_wanted"]).all()


@pytest.mark.sampled
@pytest.mark.usefixtures("shuffled")
def test_a_window_join_by_arrival_counts_rows_over_all_partitions(
    on_spark: Any, tables: dict[str, pa.Table], tmp_path: Path
) -> None:
    def build(topology: Topology) -> Stream:
        left, right = streams(topology, tmp_path)
        return left.join(
            right, "k", keep=hf.latest(rows=ROWS * 2), other_keep=hf.latest(rows=ROWS * 2), name="j"
        )

    found = on_spark(build).to_pylist()
    left, right = (tables[name].to_pylist() for name in ("left", "right"))
    wanted = [(a["v"], b["w"]) for a in left for b in right if a["k"] is not None and a["k"] == b["k"]]
    assert sorted((row["v"], row["w"]) for row in found) == sorted(wanted), (
        "windows that hold all: all pairs, once"
    )
