"""How many rows a function got that reads them as it likes, outside of regions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.ids import Attempt
from holdfast.language.connectors import StepId
from holdfast.runtime.engines.spark.readable import TRIES, ReadableRows, RowCounts, TableReader
from holdfast.sources import file_spark

pytestmark = pytest.mark.spark
STEP = StepId(Attempt(1), 1)


def sink(fn: Callable[[Any], object]) -> hf.ForeachBatch:
    made = hf.ForeachBatch(lambda rows, id: fn(rows))
    made.let_spark_count = True
    return made


@pytest.mark.parametrize(
    "fn",
    [
        lambda rows: rows.count(),
        lambda rows: rows.collect(),
        lambda rows: rows.toArrow(),
        lambda rows: (rows.where("id < 3").count(), rows.count()),
        lambda rows: rows.write.format("noop").mode("overwrite").save(),
    ],
    ids=["count", "collect", "to Arrow", "twice", "write"],
)
@pytest.mark.parametrize("column", ["id", "uuid()"])
def test_the_functions_own_reading_counts(spark: Any, fn: Callable[[Any], object], column: str) -> None:
    rows = spark.range(0, 100, 1, 3).selectExpr("id", f"{column} as x")
    assert RowCounts().write(sink(fn), rows, STEP) == 100


def test_what_the_driver_knows_needs_no_reading(spark: Any) -> None:
    table = pa.table({"id": range(7)})
    frame = ReadableRows(lambda: TableReader(table), 0, lambda: spark.range(7), rows=7)
    assert RowCounts().write(sink(lambda rows: None), frame.mapped(lambda rows: rows), STEP) == 7


def test_a_function_that_reads_otherwise_is_not_waited_for_again_and_again(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_spark, "OBSERVED_S", 0.01)
    asked = []
    monkeypatch.setattr(
        "holdfast.runtime.engines.spark.readable.counted",
        lambda frame, counters: asked.append(1) or file_spark.counted(frame, counters),
    )
    counts, reads_nothing = RowCounts(), sink(lambda rows: None)
    assert [counts.write(reads_nothing, spark.range(5), STEP) for _ in range(TRIES + 3)] == [None] * (
        TRIES + 3
    )
    assert len(asked) == TRIES


@pytest.mark.parametrize("before", ["nothing", "a filter", "an aggregate"])
def test_status_tells_how_many_rows_a_function_outside_of_regions_got(
    spark: Any, tmp_path: Path, before: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        lines = [json.dumps({"n": n, "k": n % 5}) for n in range(number * 50, number * 50 + 50)]
        (tmp_path / f"in/{number}.json").write_text("\n".join(lines) + "\n")
    topology = hf.Topology("counted")
    source = hf.Files(str(tmp_path / "in"), "json", "n long, k long", max_rows_per_step=30)
    rows: Any = topology.source(source, name="rows")
    if before == "a filter":
        rows = rows.filter("n % 2 = 0")
    if before == "an aggregate":
        rows = rows.aggregate("k", emit="each", n=hf.count())
    got: list[int] = []
    rows.sink(hf.ForeachBatch(lambda frame, id: got.append(frame.count())), name="out")
    status = topology.run(spark, until="available")
    assert sum(got) == {"nothing": 100, "a filter": 50, "an aggregate": 100}[before]
    assert sum(element.sink_rows.get("out", 0) for element in status.elements.values()) == sum(got)
