"""Logs on Spark: read by tasks, written by topologies and by Spark's own queries, each row once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.failpoints import arm, disarm
from holdfast.sources.logs import log_source
from holdfast.sources.logs.spark_versions import HAS_ARROW_STREAMS, HAS_LIMITS

pytestmark = pytest.mark.spark
ROWS = 1000
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

with_limits = pytest.mark.skipif(
    not HAS_LIMITS, reason="maxRowsPerTrigger is refused before Spark 4.2: test_spark_versions.py"
)
with_streams = pytest.mark.skipif(
    not HAS_ARROW_STREAMS, reason="streams into logs are refused before Spark 4.1: test_spark_versions.py"
)


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    disarm()


@pytest.fixture
def on_spark(spark: Any) -> Any:
    hf.register_log_format(spark)
    return spark


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with hf.Log(tmp_path / "log") as made:
        for first in range(0, ROWS, 100):
            made.append([{"n": n, "k": f"k{n % 7}"} for n in range(first, first + 100)])
            if first == 500:
                made.compact()
    return tmp_path / "log"


def ids(path: Path) -> list[int]:
    return [row["n"] for row in hf.Log(path).reader().read_all().to_pylist()]


@pytest.mark.parametrize("by", ["driver", "tasks"])
def test_a_topology_reads_a_log_and_writes_another(
    on_spark: Any, log: Path, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_source, "DRIVER_ROWS", 0 if by == "tasks" else 10_000)
    made = hf.Topology("copy")
    rows = made.source(hf.LogSource(log, rows_per_step=150), name="log").consistent("r", period=0.2)
    even = rows.filter("n % 2 = 0")
    even.sink(hf.LogSink(tmp_path / "even"), name="even")
    even.aggregate("k", times=hf.count(), emit="each", name="counted").sink(
        hf.LogSink(tmp_path / "counted"), name="counts"
    )
    arm("step.end=raise@3;sink.commit.begin=raise@2")
    made.run(on_spark, store=f"file:{tmp_path}/store", until="available")
    assert all(disarm().values())
    assert ids(tmp_path / "even") == list(range(0, ROWS, 2))
    counted = hf.Log(tmp_path / "counted").reader().read_all().to_pylist()
    assert len(counted) == ROWS // 2
    assert {row["k"]: row["times"] for row in counted} == {
        f"k{k}": sum(n % 7 == k for n in range(0, ROWS, 2)) for k in range(7)
    }


def test_a_batch_reads_what_counts(on_spark: Any, log: Path) -> None:
    def frame() -> Any:
        return on_spark.read.format("holdfast-log").load(str(log))

    assert frame().schema.names == ["n", "k"]
    assert sorted(row.n for row in frame().collect()) == list(range(ROWS))
    with hf.Log(log) as made:
        made.append([{"n": ROWS, "k": "late"}], epoch=1)
        assert frame().count() == ROWS
        made.seal_epoch(1)
        assert frame().count() == ROWS + 1


def test_a_batch_is_written_whole(on_spark: Any, tmp_path: Path) -> None:
    frame = on_spark.range(0, 100, 1, 3).withColumnRenamed("id", "n")
    for _ in range(2):
        frame.write.format("holdfast-log").mode("append").save(str(tmp_path / "new"))
    assert sorted(ids(tmp_path / "new")) == sorted(2 * list(range(100)))
    assert not list((tmp_path / "new" / "tmp").glob("spark-*"))
    with pytest.raises(Exception, match="never overwritten"):
        frame.write.format("holdfast-log").mode("overwrite").save(str(tmp_path / "new"))


def copied(on_spark: Any, source: Path, here: Path, **options: Any) -> Any:
    frame = on_spark.readStream.format("holdfast-log").options(**options).load(str(source))
    stream = frame.writeStream.format("holdfast-log").option("writer", "copy")
    return (
        stream.option("checkpointLocation", str(here / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(here / "copy"))
    )


@with_limits
def test_a_query_copies_a_log_once_though_a_batch_is_repeated(
    on_spark: Any, log: Path, tmp_path: Path
) -> None:
    query = copied(on_spark, log, tmp_path, maxRowsPerTrigger=300)
    query.awaitTermination()
    assert [progress["numInputRows"] for progress in query.recentProgress][:4] == [300, 300, 300, 100]
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.with_name(f".{newest.name}.crc").unlink()
    newest.unlink()  # as if it had died between the commit of the last batch and Spark's note of it
    with hf.Log(log) as made:
        made.append([{"n": n, "k": "more"} for n in range(ROWS, ROWS + 50)])
    copied(on_spark, log, tmp_path, maxRowsPerTrigger=300).awaitTermination()
    assert sorted(ids(tmp_path / "copy")) == list(range(ROWS + 50))


@with_streams
def test_a_stream_may_begin_now(on_spark: Any, log: Path, tmp_path: Path) -> None:
    copied(on_spark, log, tmp_path, start="now").awaitTermination()
    with hf.Log(log) as made:
        made.append([{"n": ROWS, "k": "new"}])
    copied(on_spark, log, tmp_path, start="now").awaitTermination()
    assert ids(tmp_path / "copy") == [ROWS]


@with_streams
def test_a_writer_needs_a_name(on_spark: Any, log: Path, tmp_path: Path) -> None:
    frame = on_spark.readStream.format("holdfast-log").load(str(log))
    with pytest.raises(Exception, match="needs the name of its writer"):
        frame.writeStream.format("holdfast-log").option("checkpointLocation", str(tmp_path / "c")).start(
            str(tmp_path / "copy")
        ).awaitTermination()


@with_streams
def test_a_stream_of_spark_feeds_a_region_once(on_spark: Any, tmp_path: Path) -> None:
    def topology() -> hf.Topology:
        files = on_spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in"))
        made = hf.Topology("stream")
        rows = made.source(hf.from_spark(files, tmp_path / "kept", rows_per_step=7), name="rows")
        rows.consistent("r", period=0.2).sink(hf.LogSink(tmp_path / "out"), name="out")
        return made

    def add(*numbers: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        for number in numbers:
            rows = range(10 * number, 10 * number + 10)
            (tmp_path / "in" / f"{number}.csv").write_text("".join(f"{n}\n" for n in rows))

    add(0, 1, 2)
    arm("step.end=raise@2")
    topology().run(on_spark, store=f"file:{tmp_path}/store", until="available")
    assert all(disarm().values())
    add(3)
    topology().run(on_spark, store=f"file:{tmp_path}/store", until="available")
    assert sorted(ids(tmp_path / "out")) == list(range(40))
    assert "preserved in the log" in topology().explain(spark=on_spark)
    with pytest.raises(Exception, match="streaming DataFrame"):
        hf.from_spark(on_spark.range(3), tmp_path / "other")


def test_times_and_nested_columns_go_there_and_back(on_spark: Any, tmp_path: Path) -> None:
    frame = on_spark.sql(
        "select timestamp'2026-01-02 03:04:05' at, timestamp_ntz'2026-01-02 03:04:05' local, array(1, 2) a,"
        " named_struct('x', 1L, 's', 'y') st, map('k', 1.5D) m, cast(3.25 as decimal(10, 2)) d, date'2026-01-02' day"
    )
    frame.write.format("holdfast-log").mode("append").save(str(tmp_path / "new"))
    found = on_spark.read.format("holdfast-log").load(str(tmp_path / "new"))
    assert found.schema.simpleString() == frame.schema.simpleString()
    assert found.collect() == frame.collect()


def test_a_persisted_stream_is_exact_under_failures_on_both_sides(on_spark: Any, tmp_path: Path) -> None:
    """By two regions: both fail, each on its own, and order-sensitive work behind the log sees every row once, in its place."""
    made = hf.Topology("persisted")
    rows = hf.Rows([(n, f"k{n % 5}") for n in range(ROWS)], "n long, k string", rows_per_step=100)
    kept = made.source(rows, name="rows").consistent("first", period=0.2).filter("n % 2 = 0")
    behind = kept.persist("middle").consistent("second", period=0.2)
    behind.aggregate("k", times=hf.count(), newest=hf.last("n"), emit="each", name="counted").sink(
        hf.LogSink(tmp_path / "counted"), name="counts"
    )
    behind.filter("n < 100").sink(hf.LogSink(tmp_path / "few"), name="few")
    arm("step.end=raise@4;sink.commit.begin=raise@2;drain.all_acked=raise@3")
    made.run(on_spark, store=f"file:{tmp_path}/store", until="available")
    assert all(disarm().values())
    assert ids(tmp_path / "store/logs/middle") == list(range(0, ROWS, 2))
    assert ids(tmp_path / "few") == list(range(0, 100, 2))
    found = hf.Log(tmp_path / "counted").reader().read_all().to_pylist()
    for key in range(5):
        mine = sorted((row["times"], row["newest"]) for row in found if row["k"] == f"k{key}")
        wanted = [n for n in range(0, ROWS, 2) if n % 5 == key]
        assert mine == list(enumerate(wanted, 1))


def test_an_element_without_state_recovers_on_spark(on_spark: Any, tmp_path: Path) -> None:
    for armed in ("step.end=raise@2;persist.appended=raise@5", ""):  # the second run finds nothing to do
        made = hf.Topology("recovers")
        rows = hf.Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=100)
        kept = made.source(rows, name="rows").filter("n % 4 != 1").persist("middle")
        kept.consistent("r", period=0.2).sink(hf.LogSink(tmp_path / "out"), name="out")
        arm(armed)
        made.run(on_spark, store=f"file:{tmp_path}/store", until="available")
        assert all(disarm().values())
    wanted = [n for n in range(ROWS) if n % 4 != 1]
    assert ids(tmp_path / "store/logs/middle") == ids(tmp_path / "out") == wanted


@pytest.mark.parametrize("before", ["region", "alone"])
def test_windows_behind_a_log_close_by_rows_that_a_filter_left_out(
    before: str, on_spark: Any, tmp_path: Path
) -> None:
    """Both sides fail; the windows are those of a run without a log. The filter drops the last rows: only time tells of them."""
    rows = [(BEGIN + timedelta(seconds=n + (n * 7) % 50), n % 3, n) for n in range(600)]

    def windows(name: str, through_log: bool, failures: str) -> tuple[list[str], list[str]]:
        made = hf.Topology(name)
        data = hf.Rows(rows, "at timestamp, k long, n long", rows_per_step=60)
        stream = made.source(data, name="rows")
        if before == "region" or not through_log:
            stream = stream.consistent("first", period=0.2)
        stream = stream.event_time("at", delay=30).filter("n % 4 = 1 and n < 400")
        if through_log:
            stream = stream.persist("middle").consistent("second", period=0.2)
        counted = stream.aggregate("k", window=hf.tumbling(20), rows=hf.count(), late=True, name="windows")
        counted.sink(hf.LogSink(tmp_path / name / "out"), name="out")
        counted.late.sink(hf.LogSink(tmp_path / name / "late"), name="late")
        arm(failures)
        made.run(on_spark, store=f"file:{tmp_path}/{name}/store", until="available")
        assert all(disarm().values())
        found = []
        for end in ("out", "late"):
            table = hf.Log(tmp_path / name / end).reader().read_all()
            found.append(sorted(json.dumps(row, default=str) for row in table.to_pylist()))
        return found[0], found[1]

    golden = windows("direct", False, "")
    assert len(golden[0]) > 40
    assert golden[1]
    assert (
        windows("logged", True, "step.end=raise@4;sink.commit.begin=raise@2;drain.all_acked=raise@3")
        == golden
    )
