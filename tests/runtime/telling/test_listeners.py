"""Listeners hear of a run in a thread of their own; one that raises, hangs or is slow harms nobody."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import ConfigError
from holdfast.runtime.telling import listener as listeners
from holdfast.runtime.telling.events import ResetBegun, RowsLate, RunStarted, Summary
from holdfast.runtime.telling.listener import Listening
from holdfast.testing import arm, disarm, run_local


class Notes(hf.Listener):
    """Writes down what it hears, and who tells."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.threads: set[int] = set()

    def _note(self, what: str, about: Any) -> None:
        self.threads.add(threading.get_ident())
        self.heard.append((what, about))

    def on_started(self, event: Any) -> None:
        self._note("started", event)

    def on_progress(self, progress: Any) -> None:
        self._note("progress", progress)

    def on_reset(self, event: Any) -> None:
        self._note("reset", event)

    def on_late(self, event: Any) -> None:
        self._note("late", event)

    def on_terminated(self, event: Any) -> None:
        self._note("terminated", event)


class Broken(hf.Listener):
    def on_started(self, event: Any) -> None:
        raise ValueError("no")

    def on_progress(self, progress: Any) -> None:
        raise ValueError("never")


class Hanging(hf.Listener):
    def __init__(self) -> None:
        self.let_go = threading.Event()

    def on_started(self, event: Any) -> None:
        self.let_go.wait(60)


def windows(name: str) -> hf.Topology:
    topology = hf.Topology("shop")
    at = [n if n != 80 else 1 for n in range(90)]  # one comes much too late
    rows = [(n % 3, datetime.fromtimestamp(moment, UTC)) for n, moment in enumerate(at)]
    source = hf.Rows(rows, "k int, at timestamp", rows_per_step=10)
    timed = (
        topology.source(source, name="rows")
        .consistent("books", period=0.05)
        .event_time("at", delay="2 seconds")
    )
    timed.aggregate("k", window=hf.tumbling("10 seconds"), n=hf.count(), name="counts").sink(
        hf.MemorySink(name), name="out"
    )
    return topology


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Any:
    yield request.node.name
    hf.MemorySink.clear(request.node.name)


def test_a_listener_hears_of_the_beginning_late_rows_resets_progress_and_the_end(
    sink: str, tmp_path: Path
) -> None:
    notes = Notes()
    arm("step.end=raise@3")
    try:
        status = run_local(windows(sink), f"file:{tmp_path}/store", listeners=[notes])
    finally:
        disarm()
    kinds = [what for what, _ in notes.heard]
    assert (kinds[0], kinds[-1]) == ("started", "terminated")
    heard = dict(notes.heard)
    assert heard["started"].topology == "shop"
    assert heard["reset"].region == "books"
    assert "FaultInjected" in heard["reset"].reason
    assert (heard["late"].operator, heard["late"].rows) == ("counts", 1)
    assert heard["terminated"].state == "ended"
    assert heard["terminated"].error is None
    assert heard["progress"].rows == status.progress.rows
    assert kinds.count("reset") == status.regions["books"].resets == 1
    assert len(notes.threads) == 1
    assert threading.get_ident() not in notes.threads


def test_listeners_that_raise_or_hang_harm_neither_the_run_nor_others(
    sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "END_S", 0.2)
    notes, hanging = Notes(), Hanging()
    with caplog.at_level(logging.WARNING, logger="holdfast.run"):
        run_local(windows(sink), f"file:{tmp_path}/store", listeners=[Broken(), hanging, notes])
    hanging.let_go.set()
    assert len(hf.MemorySink.rows(sink)) == 24
    assert [what for what, _ in notes.heard][-1] == "terminated"
    said = [record.getMessage() for record in caplog.records]
    assert sum("Broken" in line and "failed" in line for line in said) == 1, "told once"
    assert sum("Hanging" in line and "does not answer" in line for line in said) == 1


def test_why_a_run_is_parked_is_told(tmp_path: Path) -> None:
    def explode(batch: Any) -> Any:
        raise ValueError("too hot")

    notes, topology = Notes(), hf.Topology("hot")
    rows = topology.source(hf.Rows([(1,)], "n long"), name="rows").consistent("r", max_consecutive_resets=1)
    rows.map_arrow(explode, "n long", name="m").sink(hf.MemorySink("hot"), name="out")
    with pytest.raises(hf.RegionParkedError):
        run_local(topology, f"file:{tmp_path}/store", listeners=[notes])
    what, event = notes.heard[-1]
    assert (what, event.state) == ("terminated", "parked")
    assert "too hot" in event.error


def test_what_waits_for_a_slow_listener_is_bounded_and_of_progress_only_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "WAITING_MAX", 5)
    status = {"topology": "t", "state": "running", "elements": {}, "regions": {}, "lost_rows": {}}
    notes, gate = Notes(), threading.Event()
    notes.on_started = lambda event: gate.wait(10) and None  # type: ignore[method-assign]
    told = Listening(notes)
    told(RunStarted("t"))
    while told._waiting:  # the thread has taken it
        pass
    for at in range(20):
        told(Summary({**status, "at": float(at)}))
    for _ in range(3):
        told(ResetBegun("r", 1, 2, 1))
    gate.set()
    told.close()
    assert [what for what, _ in notes.heard] == ["progress", "reset", "reset", "reset"]
    assert notes.heard[0][1].timestamp == "1970-01-01T00:00:19.000Z"

    gate.clear()
    slow = Listening(notes)
    slow(RunStarted("t"))
    while slow._waiting:
        pass
    notes.heard.clear()
    for number in range(9):
        slow(RowsLate("e", "o", number, number))
    gate.set()
    slow.close()
    assert [event.rows for _, event in notes.heard] == [4, 5, 6, 7, 8]


def test_what_is_no_listener_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no listener"):
        run_local(windows("x"), f"file:{tmp_path}/store", listeners=[print])


def test_progress_has_the_shape_of_sparks(sink: str, tmp_path: Path) -> None:
    progress = run_local(windows(sink), f"file:{tmp_path}/store").progress
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    theirs = StreamingQueryProgress.fromJson({**json.loads(progress.json), "id": "0" * 32, "runId": "0" * 32})
    assert theirs.numInputRows == progress.numInputRows == 90
    assert theirs.batchId == progress.epoch == progress.epochs["books"]
    assert theirs.stateOperators[0].operatorName == "counts"
    assert theirs.stateOperators[0].numRowsDroppedByWatermark == 1
    assert theirs.sources[0].description == "rows"
    assert theirs.eventTime["watermark"] == "1970-01-01T00:01:27.000Z"
    assert progress.sources[0].metrics == {"lag_rows": 0}
    assert json.loads(progress.prettyJson) == json.loads(progress.json)
