"""dedup, lifetimes, top_n, sort and barrier on Spark, with and without a shuffle, against the same on Arrow tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.testing import compare_rows, compare_sequence, run_local

pytestmark = [pytest.mark.spark, pytest.mark.slow]

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = "k string, at timestamp, v long"
NAMES = ("again", "clocked", "running", "best", "sorted", "keyed", "rows")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    random = np.random.default_rng(11)
    for source in ("a", "b"):
        directory = tmp_path / source
        directory.mkdir()
        for number in range(3):
            seconds = number * 14 + np.arange(70) // 5 - random.integers(0, 4, 70)
            table = pa.table(
                {
                    "k": pa.array([f"k{n}" if n else None for n in random.integers(0, 9, 70)]),
                    "at": pa.array(seconds * 1_000_000).cast(UTC),
                    "v": random.integers(0, 40, 70),
                }
            )
            pq.write_table(table, directory / f"part-{number}.parquet")
    return tmp_path


def streams(topology: Topology, files: Path, filtered: bool) -> list[Stream]:
    a, b = (
        topology.source(
            hf.Files(str(files / name), "parquet", SCHEMA, max_rows_per_step=70), name=name
        ).consistent(period=0.3)
        for name in ("a", "b")
    )
    if filtered:
        a, b = a.filter("v >= 0"), b.filter("v >= 0")
    made = {
        "again": a.dedup("k", ttl=hf.ttl(3, on="at", delay=1), name="again"),
        "clocked": a.aggregate("k", "each", ttl=hf.ttl(3600), n=hf.count(), name="clocked"),
        "running": a.top_n(3, by="k", order=["-v", "at"], name="running"),
        "best": a.top_n(2, by=[], order="-v", window=hf.tumbling(10, on="at", delay=2), name="best"),
        "sorted": a.union(b).sort("at", delay=2, name="sorted"),
        "keyed": a.zip(b, by="k", name="keyed"),
        "rows": a.zip(b, name="rows"),
    }
    assert tuple(made) == NAMES
    return list(made.values())


def golden(files: Path) -> dict[str, Any]:
    topology = Topology("golden")
    for name, stream in zip(NAMES, streams(topology, files, False), strict=True):
        stream.sink(hf.MemorySink(f"golden-{name}"), name=f"{name}_out")
    run_local(topology, store=f"file:{files}/golden", partitions=1)
    found = {name: hf.MemorySink.table(f"golden-{name}") for name in NAMES}
    for name in NAMES:
        hf.MemorySink.clear(f"golden-{name}")
    return found


@pytest.mark.sampled
def test_they_give_on_spark_what_they_give_without(on_spark: Any, files: Path, shuffled: bool) -> None:
    found = on_spark.several(lambda topology: streams(topology, files, shuffled))
    wanted = golden(files)
    for name, table in zip(NAMES, found, strict=True):
        mine, other = wanted[name].to_pylist(), table.to_pylist()
        assert mine, f"{name} has no rows: nothing is learnt about it"
        if name == "running":
            mine, other = (list({(r["k"], r["rank"]): r for r in rows}.values()) for rows in (mine, other))
        (compare_sequence if name in ("sorted", "rows") else compare_rows)(mine, other)
