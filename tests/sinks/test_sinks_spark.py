"""Sinks fed by Spark: what is written is what Spark reads back, and a region's rows show only after commit."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.errors import NoSpaceError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.sinks import ConsoleSink, FileSink, ForeachBatch, MemorySink
from holdfast.testing.sink_conformance import context

pytestmark = pytest.mark.spark

COLUMNS = (
    "id",
    "concat('w\\n,\"', id) as word",
    "timestamp_micros(id * 1001000) as at",
    "cast(id as decimal(20,3)) as price",
    "if(id % 2 = 0, null, id / 3) as third",
    "0L as __hf_row",
)
NTZ = "timestamp_ntz'2020-01-01 00:00:00' as wall"


def frame(spark: Any, first: int, end: int, *more: str, partitions: int = 2) -> Any:
    return spark.range(first, end, 1, partitions).selectExpr(*COLUMNS, *more)


def step(number: int) -> StepId:
    return StepId(Attempt(0), number)


def listed(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if not path.name.startswith("."))


def as_text(rows: list[Any]) -> list[str]:
    return sorted(str(tuple(row)) for row in rows)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("format", "more", "settings"),
    [
        ("csv", (), {}),
        ("csv", (), {"options": {"compression": "gzip"}}),
        ("json", (), {}),
        ("parquet", (), {}),
        ("parquet", (NTZ,), {"partition_files": 1}),
    ],
)
def test_epochs_of_several_steps_are_read_back_by_spark(
    spark: Any, tmp_path: Path, format: Any, more: tuple[str, ...], settings: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    sink = FileSink(str(out), format, **settings)
    sink.open(context())
    sink.restore(Epoch(0), None)
    for number in range(3):
        sink.write_spark(frame(spark, 10 * number, 10 * number + 10, *more), step(number))
    sink.write_spark(frame(spark, 0, 0, *more), step(3))
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    assert listed(out) == []
    sink.commit(Epoch(1), prepared)
    sink.write_spark(frame(spark, 30, 40, *more), step(4))
    sink.commit(Epoch(2), sink.prepare(Epoch(2), sink.seal(Epoch(2))))
    sink.write_spark(frame(spark, 900, 910, *more), step(5))
    names = listed(out)
    if not settings:
        assert names == [f"part-out-e00000000{e}-p000{p}.{format}" for e in (1, 2) for p in (0, 1)]
    elif format == "parquet":
        assert names == [f"part-out-e00000000{e}-p0000.parquet" for e in (1, 2)]
    else:
        assert len(names) == 8
        assert all(name.endswith(".csv.gz") for name in names)
    wanted = frame(spark, 0, 40, *more).drop("__hf_row")
    reader = (
        spark.read if format == "parquet" else spark.read.schema(wanted.schema).option("multiLine", "true")
    )
    files = [f"file://{out / name}" for name in names]
    if format == "json":
        reader = spark.read.schema(wanted.schema)
    found = reader.format(format).option("header", "true").load(files)
    assert [field.dataType for field in found.schema] == [field.dataType for field in wanted.schema]
    assert as_text(found.collect()) == as_text(wanted.collect())
    assert spark.read.format(format).load(str(out)).count() >= 40  # the plain directory is readable too


def test_outside_a_region_a_step_shows_at_once_and_costs_no_merge(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = FileSink(str(out), "parquet", options={"maxRecordsPerFile": 3})
    sink.open(context(4, region=None))
    sink.write_spark(frame(spark, 0, 10), step(0))
    sink.write_spark(frame(spark, 0, 0), step(1))
    shown = [re.sub(r"-r\d{8}T\d{6}-[0-9a-f]{8}-", "-rRUN-", name) for name in listed(out)]
    assert shown == [f"part-out-t4-rRUN-a0-s000000000-p000{n}.parquet" for n in range(4)]
    assert spark.read.parquet(str(out)).count() == 10
    assert pq.read_schema(out / listed(out)[0]).names == ["id", "word", "at", "price", "third"]


def test_full_disk_in_a_spark_task_is_told_as_no_space(spark: Any, tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"), "json")
    sink.open(context())
    full = spark.range(1).selectExpr("raise_error('java.io.IOException: No space left on device') as x")
    with pytest.raises(NoSpaceError):
        sink.write_spark(full.selectExpr("cast(x as string) as x"), step(0))
    assert sink.seal(Epoch(1)) == []


def test_foreach_gets_an_epoch_once_with_a_stable_number(spark: Any, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def take(df: Any, id: int) -> None:
        calls.append((id, df.count()))

    sink = ForeachBatch(take, per="epoch", staging=str(tmp_path))
    sink.open(context())
    sink.restore(Epoch(0), None)
    sink.write_spark(frame(spark, 0, 3), step(0))
    sink.write_spark(frame(spark, 3, 7), step(1))
    prepared = sink.prepare(Epoch(5), sink.seal(Epoch(5)))
    assert calls == []
    again = ForeachBatch(take, per="epoch", staging=str(tmp_path))
    again.open(context(2))
    again.restore(Epoch(5), prepared)
    again.commit(Epoch(5), prepared)
    assert calls == [(5, 7)]
    assert "same epoch number" in sink.reason
    each = ForeachBatch(take)
    each.open(context())
    each.write_spark(frame(spark, 0, 2), step(8))
    assert calls == [(5, 7), (8, 2)]


def test_console_prints_the_first_rows_but_runs_the_whole_step_once(spark: Any) -> None:
    out = io.StringIO()
    seen = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    sink = ConsoleSink(rows=3, out=out)
    sink.open(context(sink="screen"))
    sink.write_spark(spark.range(0, 1000, 1, 2).mapInArrow(count, "id long"), step(7))
    sink.write_spark(spark.range(0), step(8))
    assert out.getvalue() == "screen · step 7\nid\n0\n1\n2\n\n"
    assert seen.value == 1000


def test_memory_takes_a_frame(spark: Any) -> None:
    MemorySink.clear("m")
    sink = MemorySink("m")
    sink.open(context(region=None))
    assert sink.write_spark(frame(spark, 0, 3), step(0)) == 3
    assert [row["id"] for row in MemorySink.rows("m")] == [0, 1, 2]
    MemorySink.clear("m")
