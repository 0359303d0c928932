"""Event time travels on Spark: behind filters in Catalyst, behind keyed operators, over connections; compared with Spark over
all rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.runtime.engines.spark import keyed
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

ROWS = 3_000
BEGIN_US = 1_790_000_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Rows at most two seconds out of order, a hundred per second. Those of key "rare" are all at the beginning."""
    random = np.random.default_rng(5)
    times = BEGIN_US + np.arange(ROWS) * 10_000 + random.integers(-2_000_000, 1, ROWS)
    keys = np.where(np.arange(ROWS) < 300, "rare", "often")
    directory = tmp_path / "in"
    directory.mkdir()
    for number, chosen in enumerate(np.array_split(np.arange(ROWS), 4)):
        columns = {
            "id": pa.array(chosen),
            "at": pa.array(times[chosen]).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(keys[chosen]),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number}.parquet")
    return directory


def read(topology: hf.Topology, files: Path) -> hf.Stream:
    source = hf.Files(str(files), "parquet", "id long, at timestamp, k string", max_rows_per_step=490)
    return topology.source(source, name="in").event_time("at", delay="2 seconds").consistent(period=0.3)


def by_spark(spark: Any, files: Path, seconds: int, condition: str = "true") -> list[dict[str, Any]]:
    rows = spark.read.parquet(str(files)).filter(condition).groupBy(F.window("at", f"{seconds} seconds"))
    return [
        {
            "window_start": row["window"].start.replace(tzinfo=dt.UTC),
            "window_end": row["window"].end.replace(tzinfo=dt.UTC),
            "n": row["n"],
        }
        for row in rows.agg(F.count("*").alias("n")).collect()
    ]


def counted(stream: hf.Stream, seconds: int, name: str, **what: Any) -> hf.Stream:
    return stream.aggregate([], window=hf.tumbling(seconds), name=name, **(what or {"n": hf.count()}))


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["short", "shuffled"])
def test_rows_that_are_dropped_move_time_on(on_spark: Any, files: Path, way: str, monkeypatch: Any) -> None:
    if way == "shuffled":
        monkeypatch.setattr(keyed, "UNSHUFFLED_PARTITIONS", 0)

    def build(topology: hf.Topology) -> list[hf.Stream]:
        stream = read(topology, files)
        filtered = stream.filter("k = 'rare'").with_columns(id="id + 1")
        renamed = stream.select("id", F.col("at").alias("when"), "k").filter("k = 'rare'")
        once = stream.dedup("k", name="once")
        return [
            counted(filtered, 1, "filtered"),
            counted(filtered.isolate(), 1, "elsewhere"),
            renamed.aggregate([], window=hf.tumbling(1, on="when"), n=hf.count(), name="renamed"),
            counted(once, 1, "first"),
            counted(counted(stream, 1, "inner"), 5, "nested", n=hf.sum("n")),
        ]

    tables = on_spark.several(build)
    rare = by_spark(on_spark.spark, files, 1, "k = 'rare'")
    for table in tables[:3]:
        compare_rows(rare, table.to_pylist())
    assert sum(tables[3].column("n").to_pylist()) == 2, "the windows of both first rows are closed, by others"
    ends = 5 * ((ROWS // 100 - 2 - 1) // 5)
    whole = [
        row
        for row in by_spark(on_spark.spark, files, 5)
        if row["window_end"].timestamp() <= BEGIN_US / 1e6 + ends
    ]
    compare_rows(
        whole, [row for row in tables[4].to_pylist() if row["window_end"] in {w["window_end"] for w in whole}]
    )


def test_the_end_of_the_input_closes_every_window(on_spark: Any, files: Path) -> None:
    def build(topology: hf.Topology) -> list[hf.Stream]:
        stream = read(topology, files)
        inner = counted(stream, 1, "inner")
        return [inner, counted(inner.isolate(), 5, "nested", n=hf.sum("n"))]

    inner, nested = on_spark.several(build, close=True)
    compare_rows(by_spark(on_spark.spark, files, 1), inner.to_pylist())
    compare_rows(by_spark(on_spark.spark, files, 5), nested.to_pylist())


class Rare(hf.Operator):
    """Rows of the rare key, in the driver."""

    def process(self, row: Any, port: int) -> Any:
        return row if row.k == "rare" else None


def test_time_goes_on_behind_an_operator_in_the_driver(on_spark: Any, files: Path) -> None:
    """Behind a filter of Spark, whose dropped rows move time on, and without it; together and in another element."""
    schema = "id long, at timestamp, k string"

    def build(topology: hf.Topology) -> list[hf.Stream]:
        stream = read(topology, files)
        rare = stream.apply(Rare, schema, name="rare")
        filtered = stream.filter("k = 'rare'").apply(Rare, schema, name="again")
        return [counted(rare, 1, "counted"), counted(filtered.isolate(), 1, "elsewhere")]

    wanted = by_spark(on_spark.spark, files, 1, "k = 'rare'")
    for table in on_spark.several(build):
        compare_rows(wanted, table.to_pylist())


def keyed_operators() -> tuple[type, type]:
    """Made here: executors do not have this module."""

    class Gaps(hf.KeyedOperator):
        """Rows with their number in the key; and by another output, when a key had no row for a second."""

        seen = hf.Value(int, default=0)
        until = hf.Value(dt.datetime)

        def process(self, row: Any, key: Any) -> Any:
            if self.until:
                self.clear_timer(self.until)
            self.seen += 1
            self.until = row.at + dt.timedelta(seconds=1)
            self.set_timer(self.until)
            return {"id": row.id, "at": row.at, "k": key}

        def on_timer(self, at: Any, key: Any) -> None:
            self.submit({"k": key, "at": at, "seen": self.seen}, port="gaps")

    class Twice(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            return [{"id": row.id, "n": n} for n in range(2)]

    return Gaps, Twice


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["short", "shuffled"])
def test_time_and_order_go_on_behind_keyed_operators(
    on_spark: Any, files: Path, way: str, monkeypatch: Any
) -> None:
    """Windows, a sort behind timers, and a dedup that finds the first of two rows at one place."""
    if way == "shuffled":
        monkeypatch.setattr(keyed, "UNSHUFFLED_PARTITIONS", 0)
    gaps_of, twice_of = keyed_operators()
    schemas = {"rows": "id long, at timestamp, k string", "gaps": "k string, at timestamp, seen long"}

    def build(topology: hf.Topology) -> list[hf.Stream]:
        stream = read(topology, files)
        made = stream.keyed("k", gaps_of, schemas=schemas, name="gaps")
        twice = stream.keyed("k", twice_of, "id long, n long", name="twice")
        return [
            counted(made["rows"], 1, "counted"),
            made["gaps"].isolate().sort(name="sorted"),
            twice.filter("id % 2 = 0").dedup("id", name="once"),
        ]

    rows, gaps, once = on_spark.several(build, close=True)
    compare_rows(by_spark(on_spark.spark, files, 1), rows.to_pylist())
    assert {row["k"]: row["seen"] for row in gaps.to_pylist()} == {"rare": 300, "often": ROWS - 300}
    assert gaps.column("at").to_pylist() == sorted(gaps.column("at").to_pylist())
    compare_rows([{"id": n, "n": 0} for n in range(0, ROWS, 2)], once.to_pylist())
