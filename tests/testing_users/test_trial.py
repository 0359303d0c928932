"""What users test with: feeds, kills that are proved, golden comparison, Spark where it is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import ConfigError
from holdfast.testing import FAILPOINTS, GoldenMismatch, Steps, run

EXAMPLE = Path(__file__).with_name("test_crash_example.py")
PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def windows() -> hf.Topology:
    topology = hf.Topology("windows")
    lines = topology.source(hf.Files("nowhere", "json", "at timestamp, n long"), name="lines").consistent("r")
    timed = lines.event_time("at", delay="1 second")
    timed.aggregate("n", window=hf.tumbling("10 seconds"), seen=hf.count(), name="seen").sink(
        hf.FileSink("never"), name="out"
    )
    timed.dedup("n", name="once").sink(hf.MemorySink("never"), name="firsts")
    return topology


def rows(*seconds: int) -> list[tuple[datetime, int]]:
    return [(datetime.fromtimestamp(s, UTC), s % 3) for s in seconds]


def test_what_sinks_get_is_caught_and_nothing_else_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial = run(windows(), feed={"lines": rows(0, 1, 2, 3, 30)}, close=True)
    assert sorted((row["n"], row["seen"]) for row in trial.rows("out")) == [(0, 1), (0, 2), (1, 1), (2, 1)]
    assert len(trial.rows("firsts")) == 3
    assert list(tmp_path.iterdir()) == []
    assert not hf.MemorySink.rows("never")
    assert trial.status.state == "ended"
    with pytest.raises(ConfigError, match="several sinks"):
        trial.rows()


def test_steps_move_the_watermark_by_hand() -> None:
    """The third row comes when the watermark is at 29 s: it is late. In one step with the first it is not... but for its place."""
    late = run(windows(), feed={"lines": Steps(rows(0, 1), rows(30), rows(2))}, close=True)
    assert late.status.progress.late_rows == {"seen": 1}
    in_time = run(windows(), feed={"lines": Steps(rows(0, 1, 2), rows(30))}, close=True)
    assert in_time.status.progress.late_rows.get("seen", 0) == 0
    with pytest.raises(GoldenMismatch, match="sink 'out': 1 missing"):
        late.same_as(in_time)


@pytest.mark.parametrize(
    "kill", ["step.begin@2", "sink.commit.begin", "ckpt.manifest.renamed@2", "drain.all_acked@2"]
)
def test_a_killed_run_gives_what_an_undisturbed_one_gives(kill: str) -> None:
    feed = {"lines": rows(*range(0, 60, 2))}
    golden = run(windows(), feed=feed, close=True)
    crashed = run(windows(), feed=feed, close=True, kill_at=kill)
    assert crashed.kills == 1
    crashed.same_as(golden)


def test_a_kill_that_never_came_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"came to its end before step\.end@9999"):
        run(windows(), feed={"lines": rows(1)}, kill_at="step.end@9999")
    with pytest.raises(ValueError, match="known name"):
        run(windows(), feed={"lines": rows(1)}, kill_at="no.such.place")
    assert "step.end" in FAILPOINTS


def test_a_run_that_fails_before_its_kill_says_why() -> None:
    def explode(batch: Any) -> Any:
        raise ValueError("too hot")

    topology = hf.Topology("hot")
    source = topology.source(hf.Rows([(1,)], "n long"), name="rows").consistent("r", max_consecutive_resets=1)
    source.map_arrow(explode, "n long", name="m").sink(hf.MemorySink("hot"), name="out")
    with pytest.raises(AssertionError, match=r"failed before(.|\n)*too hot"):
        run(topology, kill_at="sink.commit.begin")


def test_a_source_that_reads_outside_must_be_fed() -> None:
    topology = hf.Topology("net")
    topology.source(hf.TcpLines(9), name="lines").sink(hf.MemorySink("net"), name="out")
    with pytest.raises(ConfigError, match="Feed it"):
        run(topology)
    with pytest.raises(ConfigError, match="has no source 'line'"):
        run(topology, feed={"line": []})
    assert run(topology, feed={"lines": [("a",), {"line": "b"}]}).rows() == [{"line": "a"}, {"line": "b"}]


def test_exactly_once_means_that_each_row_counts_once() -> None:
    """A sink that cannot take rows back would show the difference: here it is a double that a test would notice."""
    golden = run(windows(), feed={"lines": rows(0, 1, 2)})
    twice = run(windows(), feed={"lines": rows(0, 1, 2, 0)})
    with pytest.raises(GoldenMismatch):
        twice.same_as(run(windows(), feed={"lines": rows(0, 1)}), sink="firsts")
    twice.same_as(golden, sink="firsts")


@pytest.mark.spark
def test_topologies_that_need_spark_run_on_a_session(spark: Any) -> None:
    from pyspark.sql import functions

    topology = hf.Topology("sql")
    numbers = topology.source(hf.Files("nowhere", "json", "n long"), name="numbers").consistent("r")
    even = numbers.filter("n % 2 = 0").with_columns(m=functions.col("n") * 10)
    even.aggregate("n", s=hf.sum("m"), name="s").sink(hf.FileSink("x"), name="out")
    feed = {"numbers": [(n,) for n in range(10)]}
    golden = run(topology, feed=feed, spark=spark)
    assert sorted(row["n"] for row in golden.rows()) == [0, 2, 4, 6, 8]
    killed = run(
        topology, feed=feed, spark=spark, kill_at=["step.end@2", "sink.write", "ckpt.epoch.published@2"]
    )
    killed.same_as(golden)
    assert killed.kills == 3
    assert killed.status.regions["r"].resets == 0, "the driver was killed: it did not go back"
    with pytest.raises(AssertionError, match=r"came to its end before step\.end@9999"):
        run(topology, feed=feed, spark=spark, kill_at="step.end@9999")


def test_a_users_pytest_finds_the_plug_in_by_itself(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path / "test_shop.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_page_shows_the_test_as_it_is() -> None:
    assert EXAMPLE.read_text() in PAGE.read_text()
    body = EXAMPLE.read_text().split("def test_", 1)[1].splitlines()
    assert len(body) <= 10
