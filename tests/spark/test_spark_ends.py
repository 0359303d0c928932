"""Whole runs on Spark from source to sink: files cut by rows, every sink, the caller's session, refusals, explain()."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import InputError
from holdfast.language.topology import Topology
from holdfast.sources import Rows
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

SCHEMA = "id long, word string, price decimal(9,2), at timestamp"
FILES, ROWS_PER_FILE = 3, 40


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Three json files, 40 rows each."""
    directory = tmp_path / "in"
    directory.mkdir()
    for file in range(FILES):
        rows = [
            {"id": n, "word": f"w\n,\"{n % 5}", "price": n / 4, "at": f"2026-01-01T00:00:{n % 60:02}Z"}
            for n in range(file * ROWS_PER_FILE, (file + 1) * ROWS_PER_FILE)
        ]  # fmt: skip
        (directory / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def plain(spark: Any, lines: Path) -> Any:
    return spark.read.schema(SCHEMA).json(str(lines))


@pytest.mark.sampled
@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_what_a_file_sink_wrote_is_what_spark_would_have_written(
    format: Any, spark: Any, lines: Path, tmp_path: Path
) -> None:
    topology = Topology("files")
    source = hf.Files(str(lines), "json", SCHEMA, max_rows_per_step=17)
    rows = topology.source(source, name="rows").consistent(period=0.1)
    rows.filter("id % 3 > 0").sink(hf.FileSink(str(tmp_path / "out"), format), name="out")
    status = topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    wanted = plain(spark, lines).filter("id % 3 > 0")
    reader = spark.read.schema(wanted.schema).option("header", "true")
    found = (reader.option("multiLine", "true") if format == "csv" else reader).format(format)
    compare_rows(wanted.toArrow(), found.load(str(tmp_path / "out")).toArrow())
    assert status["elements"]["rows"]["steps"] == 8, "steps cut the files, and two files may share a step"
    assert status["regions"]["rows"]["epochs_published"] >= 1


def test_an_epoch_may_lie_inside_a_file_and_the_next_run_goes_on_there(
    spark: Any, lines: Path, tmp_path: Path
) -> None:
    class Stopping(hf.Files):
        """Seems to be at its end after some steps."""

        left = 2

        def next_slice(self) -> Any:
            self.left -= 1
            return super().next_slice() if self.left >= 0 else None

    def run(source: hf.Files) -> int:
        topology = Topology("cut")
        rows = topology.source(source, name="rows").consistent(period=5)
        rows.sink(hf.FileSink(str(tmp_path / "out"), "json"), name="out")
        topology.run(spark, store=f"file:{tmp_path}/store", until="available")
        return int(spark.read.json(str(tmp_path / "out")).count())

    assert run(Stopping(str(lines), "json", SCHEMA, max_rows_per_step=13)) == 26
    (lines / "9.json").write_text('{"id": 1000}\n')
    Stopping.left = 1000
    assert run(Stopping(str(lines), "json", SCHEMA, max_rows_per_step=13)) == FILES * ROWS_PER_FILE + 1
    found = spark.read.schema(SCHEMA).json(str(tmp_path / "out")).toArrow()
    compare_rows(plain(spark, lines).toArrow(), found)


class Ledger(hf.Operator):
    """Counts everything, and holds every tenth row back until the epoch."""

    def __init__(self) -> None:
        self.seen = 0
        self.held: list[int] = []

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        if row.id % 10 == 9:
            self.held.append(row.id)
            return None
        return (self.seen, row.id)

    def drain(self) -> Any:
        held, self.held = self.held, []
        return [(-1, id) for id in held]


def test_a_python_operator_takes_rows_in_order_and_gives_the_rest_when_drained(
    spark: Any, lines: Path, on_spark: Any
) -> None:
    def build(topology: Topology) -> Any:
        source = hf.Files(str(lines), "json", SCHEMA, max_rows_per_step=25)
        rows = topology.source(source, name="rows").consistent(period=0.2)
        ledger = rows.isolate().apply(Ledger, "n long, id long", name="ledger")
        return ledger.isolate().with_columns(double="id * 2")

    found = on_spark(build).to_pylist()
    assert sorted((row["n"], row["id"]) for row in found if row["n"] > 0) == [
        (n + 1, n) for n in range(FILES * ROWS_PER_FILE) if n % 10 != 9
    ]
    assert sorted(row["id"] for row in found if row["n"] < 0) == list(range(9, FILES * ROWS_PER_FILE, 10))
    assert all(row["double"] == 2 * row["id"] for row in found)


def test_what_a_python_operator_submits_keeps_its_types(on_spark: Any) -> None:
    schema = "wall timestamp_ntz, at timestamp, price decimal(9,2), tags array<string>, s struct<a:int>"

    class Same(hf.Operator):
        def process_batch(self, table: pa.Table, port: int) -> pa.Table:
            return table

    from datetime import UTC, datetime
    from decimal import Decimal

    rows = [
        (
            datetime(2026, 1, n + 1),
            datetime(2026, 1, n + 1, tzinfo=UTC),
            Decimal(n) / 4,
            ["x", None],
            {"a": n},
        )
        for n in range(5)
    ]
    found = on_spark(
        lambda topology: topology.source(Rows(rows, schema), name="rows").consistent(period=1).apply(Same, schema, name="same")
    )  # fmt: skip
    assert found.schema == Rows([], schema).schema()
    compare_rows(Rows(rows, schema)._table, found)


def test_console_prints_and_foreach_batch_is_called(spark: Any, lines: Path, tmp_path: Path) -> None:
    screen, steps, epochs = io.StringIO(), [], []
    topology = Topology("ends")
    rows = topology.source(hf.Files(str(lines), "json", SCHEMA, max_rows_per_step=60), name="rows")
    rows.consistent(period=30)
    rows.filter("id = 7").select("id").sink(hf.ConsoleSink(out=screen), name="screen")
    rows.sink(hf.ForeachBatch(lambda df, id: steps.append((id, df.count()))), name="steps")
    per_epoch = hf.ForeachBatch(
        lambda df, id: epochs.append((id, sorted(row.id for row in df.collect()))),
        per="epoch",
        staging=str(tmp_path / "staging"),
    )
    rows.sink(per_epoch, name="epochs")
    topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert screen.getvalue() == "screen · step 1\nid\n7\n\n"
    assert steps == [(1, 60), (2, 60)]
    assert epochs == [(1, list(range(FILES * ROWS_PER_FILE)))]


def test_without_a_region_no_store_is_needed_and_every_step_shows_at_once(
    spark: Any, lines: Path, tmp_path: Path
) -> None:
    topology = Topology("plain")
    rows = topology.source(hf.Files(str(lines), "json", SCHEMA, max_rows_per_step=50), name="rows")
    rows.sink(hf.FileSink(str(tmp_path / "out"), "parquet"), name="out")
    topology.run(spark, until="available")
    compare_rows(plain(spark, lines).toArrow(), spark.read.parquet(str(tmp_path / "out")).toArrow())


def test_the_callers_session_is_used_and_not_stopped(spark: Any, on_spark: Any) -> None:
    spark.range(3).createOrReplaceTempView("prices_of_the_caller")
    found = on_spark(
        lambda topology: (
            topology.source(Rows([(1,), (2,)], "id long"), name="rows")
            .consistent(period=1)
            .transform(lambda df: df.join(df.sparkSession.table("prices_of_the_caller"), "id"))
        )
    )
    assert sorted(found["id"].to_pylist()) == [1, 2]
    spark.catalog.dropTempView("prices_of_the_caller")
    assert SparkSession.getActiveSession() is not None
    assert spark.range(5).count() == 5


def test_a_run_without_a_given_session_takes_the_active_one(spark: Any, tmp_path: Path) -> None:
    topology = Topology("active")
    rows = topology.source(Rows([(1,)], "id long"), name="rows").consistent(period=1)
    rows.select("id").sink(hf.FileSink(str(tmp_path / "out"), "json"), name="out")
    topology.run(store=f"file:{tmp_path}/store", until="available")
    assert spark.read.json(str(tmp_path / "out")).count() == 1


@pytest.mark.parametrize("order", ["stamped", "plain"])
def test_a_malformed_row_is_named_by_file_and_line(
    order: str, spark: Any, lines: Path, tmp_path: Path
) -> None:
    text = (lines / "1.json").read_text().splitlines()
    text[11] = '{"id": "no number"}'
    (lines / "1.json").write_text("\n".join(text) + "\n")
    topology = Topology("malformed")
    rows = topology.source(hf.Files(str(lines), "json", SCHEMA, max_rows_per_step=17), name="rows")
    rows.consistent(period=0.2)
    out = rows.apply(Ledger, "n long, id long", name="ledger") if order == "stamped" else rows.select("id")
    out.sink(hf.FileSink(str(tmp_path / "out"), "json"), name="out")
    with pytest.raises(InputError) as refused:
        topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert "1.json" in str(refused.value)
    assert "12" in str(refused.value)
    visible = spark.read.schema("id long").json(str(tmp_path / "out")).collect()
    assert all(row.id < ROWS_PER_FILE + 11 for row in visible), "nothing behind the bad row is visible"


def test_explain_tells_regions_elements_and_guarantees(spark: Any, lines: Path, tmp_path: Path) -> None:
    topology = Topology("told")
    rows = topology.source(hf.Files(str(lines), "json", SCHEMA), name="rows").consistent("books", period=3)
    totals = rows.with_columns(x="price * 2").isolate().aggregate("word", t=hf.sum("x"), name="totals")
    totals.sink(hf.FileSink(str(tmp_path / "out"), "csv"), name="out")
    rows.sink(hf.ConsoleSink(), name="screen")
    rows.autonomous().select("id").sink(hf.FileSink(str(tmp_path / "ids"), "csv"), name="ids")
    told = topology.explain(spark=spark)
    for word in ("books", "totals", "exactly-once", "at-least-once", "best effort", "3 s"):
        assert word in told, told
    assert topology.explain(format="mermaid", spark=spark).startswith("flowchart")
    assert not (tmp_path / "out").exists(), "explain() touches nothing"


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
@pytest.mark.parametrize("region", [True, False])
def test_sinks_tell_how_many_rows_they_wrote(spark: Any, tmp_path: Path, format: Any, region: bool) -> None:
    """Whoever writes: tasks, Spark's writer, or the driver where a step is small."""
    topology = hf.Topology("written")
    rows = topology.source(hf.Rows([(n, str(n)) for n in range(100)], "n long, w string"), name="rows")
    rows = rows.consistent("r") if region else rows
    rows.sink(hf.FileSink(tmp_path / "plain", format), name="plain")
    some = rows.filter("n % 10 <> 0").with_columns(m="concat(w, '!')")
    some.sink(hf.FileSink(tmp_path / "some", format), name="some")
    rows.filter("n < 0").sink(hf.FileSink(tmp_path / "none", format), name="none")
    rows.aggregate("w", n=hf.count(), name="counts").sink(
        hf.FileSink(tmp_path / "counts", format), name="counted"
    )
    status = topology.run(spark, store=tmp_path / "store", until="available")
    assert status.progress.sink_rows == {"plain": 100, "some": 90, "none": 0, "counted": 100}


def test_an_idle_run_has_no_jobs_and_no_epochs(spark: SparkSession, lines: Path, tmp_path: Path) -> None:
    """On a store of objects, where every request is paid for too."""
    topology = hf.Topology("idle")
    rows = topology.source(hf.Files(lines, "text"), name="rows").consistent("r", period=0.1)
    rows.filter("value <> ''").aggregate("value", n=hf.count(), name="counts").sink(
        hf.FileSink(tmp_path / "out", "json"), name="out"
    )
    run = topology.submit(spark, store=f"objects+file://{tmp_path}/store")
    try:
        wait_until(lambda: run.status().regions["r"].idle_since is not None)
        assert run.status().regions["r"].epoch >= 1
        time.sleep(1.0)
        jobs, epochs = newest_job(spark), run.status().regions["r"].epoch
        written = stored(tmp_path / "store")
        steps = sum(element.steps for element in run.status().elements.values())
        time.sleep(4.0)
        assert newest_job(spark) == jobs + 1, "the one that counted them before"
        assert run.status().regions["r"].epoch == epochs
        assert sum(element.steps for element in run.status().elements.values()) == steps
        assert stored(tmp_path / "store") == written
        (lines / ".more.txt").write_text("a new line\n")
        (lines / ".more.txt").rename(lines / "more.txt")
        wait_until(lambda: run.status().regions["r"].epoch > epochs)
    finally:
        run.close()


def stored(store: Path) -> set[str]:
    """Names of objects; what is told to people apart, since rates fall for some seconds."""
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.parent.name != "events"}


def newest_job(spark: SparkSession) -> int:
    """The number of a job that is run to know it."""
    counted = spark.sparkContext.parallelize([1], 1)
    spark.sparkContext.setJobGroup("newest", "newest")
    counted.count()
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup("newest"))


def wait_until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.05)
