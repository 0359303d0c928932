"""`sink(…, on_error="stream")` on Spark: rows are looked at in tasks, and what a function refuses comes from the driver."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import compare_rows

AT = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS = [(n, f"k{n % 5}" if n % 7 else "", AT + dt.timedelta(seconds=n)) for n in range(60)]


def test_bad_rows_are_told_once_and_the_others_written_once(spark: Any, tmp_path: Path) -> None:
    topology = hf.Topology("bad")
    rows = topology.source(
        hf.Rows(ROWS, "n long, k string, at timestamp", rows_per_step=25), name="rows"
    ).consistent("r", period=0.5)

    def insert(frame: Any, step: int) -> None:
        for row in frame.collect():
            if row.n % 2:
                function.refuse(row, ValueError("odd"))

    function = hf.ForeachBatch(insert)
    parts = str(tmp_path / "parts")
    sinks = [
        rows.sink(hf.FileSink(parts, "parquet", partition_by="k"), name="parts", on_error="stream"),
        # Behind a keyed operator, whose tasks would write the rows by themselves.
        rows.aggregate("k", n=hf.count(), name="counts").sink(
            hf.FileSink(str(tmp_path / "sums"), "parquet", partition_by="k"), name="sums", on_error="stream"
        ),
        rows.filter("n < 10").sink(function, name="function", on_error="stream"),
    ]
    for sink in sinks:
        sink.errors.sink(hf.MemorySink(f"{tmp_path.name} {sink.name}"), name=f"{sink.name}_bad")
    topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    found = {}
    for sink in sinks:
        letters = hf.MemorySink.rows(f"{tmp_path.name} {sink.name}")
        hf.MemorySink.clear(f"{tmp_path.name} {sink.name}")
        assert {letter["operator"] for letter in letters} == {sink.name}
        found[sink.name] = [json.loads(letter["row"]) for letter in letters]
    compare_rows([{"n": n, "k": k, "at": at.isoformat()} for n, k, at in ROWS if not k], found["parts"])
    assert sum(row.n for row in spark.read.parquet(parts).collect()) == sum(n for n, k, _ in ROWS if k)
    assert {row["k"] for row in found["sums"]} == {""}
    assert sorted(row["n"] for row in found["function"]) == [1, 3, 5, 7, 9]


def test_what_spark_says_about_the_users_own_line_is_told_with_the_sink(spark: Any, tmp_path: Path) -> None:
    topology = hf.Topology("bad")
    rows = topology.source(hf.Rows(ROWS, "n long, k string, at timestamp"), name="rows")
    sink = hf.ForeachBatch(lambda frame, step: frame.select("nope").count())
    rows.consistent("r", period=0.5).sink(sink, name="out")
    with pytest.raises(
        hf.RegionParkedError, match=r"failed twice in the same way.*sink 'out'.*`nope`"
    ) as caught:
        topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert 'frame.select("nope")' in str(caught.value)


def test_a_check_that_fails_in_a_task_is_told_with_the_sink(spark: Any, tmp_path: Path) -> None:
    def check(table: Any) -> Any:
        return table.column("nope")  # what is shown

    topology = hf.Topology("bad")
    rows = topology.source(hf.Rows(ROWS, "n long, k string, at timestamp"), name="rows")
    sink = hf.ForeachBatch(lambda frame, step: frame.count(), check=check)
    written = rows.consistent("r", period=0.5).sink(sink, name="out", on_error="stream")
    written.errors.sink(hf.MemorySink(tmp_path.name), name="bad")
    with pytest.raises(hf.RegionParkedError, match="sink 'out'") as caught:
        topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert "# what is shown" in str(caught.value)
