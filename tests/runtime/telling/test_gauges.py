"""What can be seen of an element: rates, lag, state and event time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.language.connectors import Lag
from holdfast.runtime.element.gauges import event_times
from holdfast.runtime.metrics import ElementMetrics
from holdfast.state.windows.watermarks import CLOSED
from holdfast.testing import run_local, submit_local


@pytest.mark.parametrize("steps", [1, 2, 10, 200])
def test_a_rate_is_what_was_done_in_the_time_that_it_took(steps: int) -> None:
    """Steady steps of 100 rows in 0.1 s are 1,000 rows/s, however many there were, and none after a while."""
    metrics = ElementMetrics("e")
    for number in range(steps):
        metrics.step_done(10 + 0.1 * (number + 1), 0.1, 100, 0)
    now = 10 + 0.1 * steps
    assert metrics.rate(now) == pytest.approx(1000)
    assert metrics.rate(now + 0.1 * steps) == pytest.approx(500, rel=0.02) or steps > 50
    assert metrics.rate(now + 6) == 0


def test_rows_that_are_counted_later_belong_to_the_time_of_their_step() -> None:
    metrics = ElementMetrics("e")
    metrics.step_done(12.0, 2.0, 0, 0)
    metrics.add_rows(12.0, 4000, "files")
    assert metrics.rate(12.0) == pytest.approx(2000)
    assert metrics.of_source("files", 12.0)["rows"] == 4000


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        (None, {}),
        ({}, {}),
        ({"reached": [], "watermark": None}, {}),
        ({"reached": [["a", 9_000_000]], "watermark": 7_000_000}, {"watermark": 7.0, "event_times": {"a": 9.0}}),
        ({"reached": [[["a", 9_000_000]], [["b", 8_000_000]]], "marks": [5_000_000, 6_000_000]},
         {"watermark": 5.0, "event_times": {"a": 9.0, "b": 8.0}}),
        ({"reached": [[["a", 9_000_000]], []], "marks": [5_000_000, None]}, {}),
        ({"reached": [["a", CLOSED]], "watermark": CLOSED - 5}, {"closed": True}),
        ({"reached": 9_000_000, "mark": 4_000_000}, {"watermark": 4.0}),
        ({"now": 5}, {}),
    ],
)  # fmt: skip
def test_event_time_is_found_in_what_operators_remember(meta: object, told: dict[str, object]) -> None:
    assert event_times(meta) == told


def test_lag_of_a_list_and_a_generator() -> None:
    rows = hf.Rows([(n,) for n in range(10)], "n long", rows_per_step=4)
    rows.next_slice()
    assert rows.lag() == Lag(rows=6)
    beacon = hf.Beacon(rows=10, rows_per_step=4)
    beacon.next_slice()
    assert beacon.lag() == Lag(rows=6)
    assert hf.Beacon().lag() == Lag()
    assert hf.TcpLines(0).lag() == Lag(rows=0)


def test_lag_of_files_is_what_is_not_read_yet(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("line\n" * 10)
        os.utime(tmp_path / f"{number}.txt", (time.time() - 100, time.time() - 100))
    files = hf.Files(tmp_path, "text", max_rows_per_step=5)
    files.seek(None)
    files.next_slice()
    assert files.lag().bytes == 125
    assert files.lag().seconds == pytest.approx(100, abs=20)
    while files.next_slice() is not None:
        pass
    assert files.lag() == Lag(0, 0, 0.0)


def test_files_that_come_while_a_step_takes_long_wait_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("first\n")
    under_way, go_on = threading.Event(), threading.Event()

    def slow(batch: Any) -> Any:
        under_way.set()
        assert go_on.wait(60)
        return batch

    topology = hf.Topology("slow")
    lines = topology.source(hf.Files(tmp_path / "in", "text"), name="lines")
    lines.map_arrow(slow, "value string", name="slow").sink(hf.MemorySink("slow"), name="out")
    job = submit_local(topology, f"file:{tmp_path}/store")

    def waiting() -> Any:
        return job.status().elements["lines"]["sources"]["lines"]["lag_bytes"]

    try:
        assert under_way.wait(60)
        assert waiting() == 0
        for number, text in ((1, "second\n"), (2, "a third\n")):
            (tmp_path / "in" / f"{number}.txt").write_text(text)
        _until(lambda: waiting() == 15)
        go_on.set()
        _until(lambda: len(hf.MemorySink.rows("slow")) == 3)
        _until(lambda: waiting() == 0)
    finally:
        go_on.set()
        job.close()
        hf.MemorySink.clear("slow")


def _until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_lag_of_a_log(tmp_path: Path) -> None:
    topology = hf.Topology("writes")
    rows = topology.source(hf.Rows([(n,) for n in range(10)], "n long"), name="rows")
    rows.sink(hf.LogSink(tmp_path / "log"), name="log")
    run_local(topology, f"file:{tmp_path}/store")
    source = hf.LogSource(tmp_path / "log", rows_per_step=4)
    source.seek(None)
    assert source.lag() == Lag()
    source.next_slice()
    assert source.lag() == Lag(rows=6)
    source.close()


def test_a_status_tells_state_and_where_the_time_of_an_epoch_went(tmp_path: Path) -> None:
    from holdfast.store.urls import open_store

    topology = hf.Topology("sums")
    rows = topology.source(
        hf.Rows([(n % 5, n) for n in range(100)], "k long, n long"), name="rows"
    ).consistent("r")
    rows.aggregate("k", s=hf.sum("n"), name="sums").sink(hf.MemorySink("gauges"), name="out")
    status = run_local(topology, f"file:{tmp_path}/store")
    (element,) = status.elements.values()
    assert element.state["sums"]["rows"] == 5
    assert element.state["sums"]["bytes"] > 0
    told = {**element.sources["rows"]}
    assert told.pop("rows_per_s") > 0
    assert told == {"lag_rows": 0, "lag_bytes": None, "lag_s": None, "rows": 100}
    shown = [e.data for e in open_store(f"file:{tmp_path}/store").events() if e.kind == "epoch.visible"]
    assert [data["epoch"] for data in shown] == list(range(1, status.regions["r"].epoch + 1))
    for data in shown:
        (of,) = data["elements"].values()
        assert 0 <= of["begun"] <= of["pinned"] <= of["stored"] <= data["published_ms"] <= data["visible_ms"]
    hf.MemorySink.clear("gauges")


def test_rows_of_several_sources_of_one_element_are_told_apart(tmp_path: Path) -> None:
    topology = hf.Topology("two")
    some = topology.source(hf.Rows([(n,) for n in range(30)], "n long"), name="some").consistent("r")
    more = topology.source(hf.Rows([(n,) for n in range(70)], "n long"), name="more").consistent("r")
    some.union(more).aggregate("n", c=hf.count(), name="c").sink(hf.MemorySink("two"), name="out")
    progress = run_local(topology, f"file:{tmp_path}/store").progress
    assert {source.description: source.numInputRows for source in progress.sources} == {
        "some": 30,
        "more": 70,
    }
    assert progress.numInputRows == 100
    hf.MemorySink.clear("two")


class Countdown(hf.KeyedOperator):
    """Forgets its key with the third row."""

    seen = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.seen += 1
        if self.seen == 3:
            self.clear()
        return {"k": row.k}


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROWS = [(n % 5, n, NOON + timedelta(seconds=n)) for n in range(60)]


def rows_of_state(tmp_path: Path, build: Callable[[Any], Any]) -> int:
    """What the status says of an operator after fifteen steps."""
    topology = hf.Topology("repeats")
    source = hf.Rows(ROWS, "k long, n long, at timestamp", rows_per_step=4)
    rows = topology.source(source, name="rows").consistent("r", period="1 hour")
    build(rows).sink(hf.MemorySink("gauges"), name="out")
    status = run_local(topology, f"file:{tmp_path}/store")
    hf.MemorySink.clear("gauges")
    return int(status.elements["rows"].state["op"]["rows"])


def test_a_row_that_changes_again_and_again_counts_once(tmp_path: Path) -> None:
    assert rows_of_state(tmp_path, lambda rows: rows.aggregate("k", s=hf.sum("n"), name="op")) == 5


def test_keys_of_a_python_operator_count_as_long_as_they_have_state(tmp_path: Path) -> None:
    assert rows_of_state(tmp_path, lambda rows: rows.keyed("k", Countdown, "k long", name="op")) == 0


def test_sums_of_open_windows_count_once_for_each_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.operators.aggregates.windowed.REWRITTEN_ROWS", 0)
    window = hf.tumbling(3600, on="at", delay=3600)

    assert (
        rows_of_state(tmp_path, lambda rows: rows.aggregate("k", window=window, s=hf.sum("n"), name="op"))
        == 5
    )


def test_rows_that_a_join_keeps_all_count(tmp_path: Path) -> None:
    def build(rows: Any) -> Any:
        return rows.join(rows, "k", within=100, on="at", delay=100, suffix="_too", name="op")

    assert rows_of_state(tmp_path, build) == 2 * len(ROWS)
