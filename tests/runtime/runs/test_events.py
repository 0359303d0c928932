"""Events of a run: a stored form that every version reads, one place that announces them, and a log for people."""

from __future__ import annotations

import datetime
import json
import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.status.store_status import read_status
from holdfast.clock import Every, ManualClock
from holdfast.runtime.telling import events as e
from holdfast.runtime.telling import stored_events
from holdfast.runtime.telling.feed import Feed
from holdfast.runtime.telling.run_log import RunLog, line_of
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, run_local

# As versions without classes for events wrote them.
EARLIER: list[tuple[str, dict[str, Any], object]] = [
    ("run.started", {"topology": "t", "until": None}, e.RunStarted("t")),
    ("run.failed", {"error": "InputError", "message": "m"}, e.RunFailed("InputError", "m")),
    (
        "epoch.published",
        {"region": "r", "epoch": 3, "attempt": 1, "ms": 12.5, "bytes": 700, "restore_s": 0.1},
        e.EpochPublished("r", 3, 1, 12.5, 700, 0.1),
    ),
    ("epoch.published", {"region": "r", "epoch": 1}, e.EpochPublished("r", 1)),
    (
        "reset.begin",
        {"region": "r", "epoch": 3, "attempt": 2, "consecutive": 1, "reason": "totals: ValueError: x"},
        e.ResetBegun("r", 3, 2, 1, "totals: ValueError: x"),
    ),
    ("reset.done", {"region": "r", "epoch": 0, "attempt": 1}, e.Restored("r", 0, 1)),
    ("restore.bound_exceeded", {"region": "r", "operators": ["a"], "bound_s": 1.0}, e.RestoreBoundExceeded("r", ("a",), 1.0)),
    ("rows.lost", {"element": "a", "rows": 7, "reason": "x"}, e.RowsLost("a", 7, "x")),
    ("rows.lost", {"region": "r", "element": "a", "rows": 7, "reason": "x"}, e.RowsLost("a", 7, "x", "r")),
    ("rows.stale", {"operator": "o", "rows": 1, "missed": [2, 3], "reason": "x"}, e.RowsStale("o", 1, (2, 3), "x")),
    ("savepoint.failed", {"name": "n", "id": "i", "reason": "x"}, e.SavepointFailed("n", "i", "x")),
    ("summary", {"state": "running", "regions": {}}, e.Summary({"state": "running", "regions": {}})),
]  # fmt: skip


def example(kind: str) -> e.RunEvent:
    """An event of a kind with a value in every field."""
    values = {"str": "x", "int": 3, "float": 0.5, "tuple[str, ...]": ("a", "b"), "tuple[int, ...]": (1, 2)}
    values["bool"] = True
    values["Mapping[str, Any]"] = {"state": "ended"}
    values["Mapping[str, float]"] = {"1000": 0.5}
    values["Mapping[str, Mapping[str, float]]"] = {"sums": {"begun": 0.5}}
    values["Mapping[str, str]"] = {"orders": "epoch 3"}
    values["Mapping[str, Mapping[str, Sequence[str]]]"] = {"sums": {"new": ["most"], "gone": ["least"]}}
    values["Mapping[str, Sequence[Sequence[float]]]"] = {"sums": [[1.5, 20.0], [2.5, 10.0]]}
    cls = e.KINDS[kind]
    return cls(**{field.name: values[str(field.type).removesuffix(" | None")] for field in fields(cls)})


@pytest.mark.parametrize("kind", sorted(e.KINDS))
def test_an_event_comes_back_from_its_stored_form(kind: str) -> None:
    event = example(kind)
    stored, data = stored_events.encode(event)
    assert stored == kind
    assert stored_events.decode(stored, json.loads(json.dumps(data))) == event


@pytest.mark.parametrize("kind", sorted(set(e.KINDS) - {"summary"}))
def test_every_event_has_a_line_for_people(kind: str) -> None:
    line = line_of(example(kind))
    assert line is not None
    assert line[1] % line[2]


@pytest.mark.parametrize(("kind", "data", "wanted"), EARLIER)
def test_what_earlier_versions_stored_is_read(kind: str, data: dict[str, Any], wanted: object) -> None:
    assert stored_events.decode(kind, data) == wanted


def test_what_later_versions_store_is_read_as_far_as_it_is_known() -> None:
    assert stored_events.decode("region.moved", {"to": "Mars"}) == stored_events.OtherEvent(
        "region.moved", {"to": "Mars"}
    )
    later = {"region": "r", "reason": "x", "mood": "sad"}
    assert stored_events.decode("region.parked", later) == e.RegionParked("r", "x")
    assert isinstance(stored_events.decode("region.parked", {"why": "x"}), stored_events.OtherEvent)
    assert isinstance(stored_events.decode("summary", {"left_out_bytes": 1 << 20}), stored_events.OtherEvent)


def test_status_reads_a_log_with_events_of_other_versions(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}/store")
    store.open("t")
    store.acquire(take_over=False)
    store.append_events([("summary", {"state": "running", "regions": {"r": {"epoch": 0}}})])
    store.append_events([(kind, data) for kind, data, _ in EARLIER if kind != "summary"])
    store.append_events([("region.moved", {"to": "Mars"}), ("epoch.published", {"number": 9})])
    store.release()
    found = read_status(f"file:{tmp_path}/store")
    assert found["summary"]["regions"]["r"]["epoch"] == 3
    assert [told["kind"] for told in found["events"]][-2:] == ["region.moved", "epoch.published"]


def test_a_subscriber_that_raises_is_told_once_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[e.RunEvent] = []

    @dataclass
    class Broken:
        """Without a hash, as dataclasses are."""

        def __call__(self, event: e.RunEvent) -> None:
            raise ValueError("I am tired")

    feed = Feed(Broken(), heard.append)
    with caplog.at_level(logging.WARNING, "holdfast"):
        feed.announce(e.RunStarted("t"))
        feed.announce(e.RegionParked("r", "x"))
    assert heard == [e.RunStarted("t"), e.RegionParked("r", "x")]
    assert len(caplog.records) == 1
    assert "I am tired" in caplog.text


def test_a_run_goes_on_although_a_subscriber_raises(tmp_path: Path) -> None:
    heard: list[e.RunEvent] = []

    def broken(event: e.RunEvent) -> None:
        raise RuntimeError("no")

    made = hf.Topology("numbers")
    source = made.source(Rows([(n,) for n in range(50)], "n long", rows_per_step=5), name="numbers")
    source.consistent("r", period=0.01).sink(MemorySink("events"), name="out")
    where = f"file:{tmp_path}/store"
    run_local(made, where, until="available", subscribers=[broken, heard.append])
    assert len(MemorySink.rows("events")) == 50
    MemorySink.clear("events")
    logged = [stored_events.decode(event.kind, event.data) for event in open_store(where).events()]
    kinds = [type(event) for event in heard]
    assert kinds == [type(event) for event in logged]
    assert kinds[0] is e.RunStarted
    assert kinds[-1] is e.RunEnded
    epochs = [event for event in heard if isinstance(event, e.EpochPublished)]
    assert epochs
    assert None not in {event.last for event in epochs}


def test_late_rows_are_told_once_over_runs(tmp_path: Path) -> None:
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    seconds = [0, 30, 1, 60, 2, 3, 90]

    def late_in(count: int) -> list[tuple[int, int]]:
        heard: list[e.RunEvent] = []
        made = hf.Topology("late")
        rows = [(begin + datetime.timedelta(seconds=s), n) for n, s in enumerate(seconds)][:count]
        source = made.source(Rows(rows, "at timestamp, n long", rows_per_step=2), name="numbers")
        kept = source.consistent("r", period=0.05).aggregate(
            [], window=hf.tumbling(10, on="at", delay=0), n=hf.count(), name="tens"
        )
        kept.sink(MemorySink("late"), name="out")
        run_local(made, f"file:{tmp_path}/store", until="available", subscribers=[heard.append])
        return [(event.rows, event.total) for event in heard if isinstance(event, e.RowsLate)]

    first, second = late_in(4), late_in(len(seconds))
    MemorySink.clear("late")
    assert sum(rows for rows, _ in first) == 1
    assert sum(rows for rows, _ in second) == 2
    assert second[-1][1] == 3


def test_epochs_are_logged_at_a_readable_rate(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = RunLog(clock)
    with caplog.at_level(logging.DEBUG, "holdfast"):
        for epoch in range(1, 26):
            for region in ("a", "b"):
                log(e.EpochPublished(region, epoch))
            clock.advance(1.0)
    levels = [record.levelno for record in caplog.records if "'a'" in record.getMessage()]
    assert len(levels) == 25
    assert [n for n, level in enumerate(levels) if level == logging.INFO] == [0, 10, 20]
    assert {record.name for record in caplog.records} == {"holdfast.region"}


def test_resets_are_logged_with_reason_and_the_first_restore_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = RunLog(ManualClock())
    with caplog.at_level(logging.INFO, "holdfast"):
        log(e.ResetBegun("r", 4, 1, 0))
        log(e.ResetBegun("r", 4, 2, 1, "totals: ValueError: x", "totals"))
        log(e.ElementFailed("loose", "ValueError: y"))
    first, second, third = caplog.records
    assert first.levelno == logging.INFO
    assert second.levelno == logging.WARNING
    assert "totals: ValueError: x" in second.getMessage()
    assert third.name == "holdfast.element"


def test_every_is_due_once_in_its_time() -> None:
    clock = ManualClock()
    at_once, later = Every(clock, 2.0), Every(clock, 2.0, at_once=False)
    found = []
    for _ in range(5):
        found.append((at_once.due(), later.due()))
        clock.advance(1.0)
    assert found == [(True, False), (False, False), (True, True), (False, False), (True, True)]


def test_a_changed_topology_is_told_with_what_is_new_and_gone_and_only_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(**aggregates: Any) -> tuple[list[e.TopologyChanged], dict[str, Any]]:
        heard: list[e.RunEvent] = []
        made = hf.Topology("changing")
        source = made.source(Rows([(1,), (2,)], "n long"), name="numbers").consistent("r", period=0.05)
        source.aggregate("n", name="sums", **aggregates).sink(MemorySink("changing"), name="out")
        status = run_local(made, f"file:{tmp_path}/store", until="available", subscribers=[heard.append])
        MemorySink.clear("changing")
        return [event for event in heard if isinstance(event, e.TopologyChanged)], status["regions"]["r"]

    with caplog.at_level(logging.INFO, "holdfast"):
        told, status = run(seen=hf.count(), least=hf.min("n"))
        told_again, _ = run(seen=hf.count(), least=hf.min("n"))
        assert not told
        assert not told_again
        assert "topology_changed" not in status
        assert "has changed" not in caplog.text
        (told_last,), status = run(seen=hf.count(), most=hf.max("n"))
    assert told_last.changed == {"sums": {"new": ["most"], "gone": ["least"]}}
    assert (told_last.new, told_last.gone) == ((), ())
    assert status["topology_changed"]["changed"] == told_last.changed
    assert "'sums' is taken over with changes: most begins with nothing; least is dropped" in caplog.text
    stored = [
        event for event in open_store(f"file:{tmp_path}/store").events() if event.kind == "topology.changed"
    ]
    assert [stored_events.decode(event.kind, event.data) for event in stored] == [told_last]


def test_late_rows_are_logged_at_a_readable_rate_with_what_there_is_in_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    log = RunLog(clock)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for second in range(25):
            log(e.RowsLate("a", "tens", 1, second + 1))
            log(e.RowsMalformed("a", "lines", 1, second + 1))
            clock.advance(1.0)
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "tens" in line] == [
        f"operator 'tens': 1 late rows, {total} in all" for total in (1, 11, 21)
    ]
    assert len([line for line in said if "'lines' leaves out" in line]) == 3


def test_the_start_and_the_end_are_logged_with_what_a_person_wants_to_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run() -> list[str]:
        caplog.clear()
        made = hf.Topology("told")
        begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        rows = [(begin + datetime.timedelta(seconds=s),) for s in (0, 30, 1)]
        source = made.source(Rows(rows, "at timestamp", rows_per_step=1), name="numbers").consistent(
            "r", period=0.05
        )
        tens = source.aggregate([], window=hf.tumbling(10, on="at", delay=0), n=hf.count(), name="tens")
        tens.sink(MemorySink("told"), name="out")
        run_local(made, f"file:{tmp_path}/store", until="available")
        return [record.getMessage() for record in caplog.records]

    with caplog.at_level(logging.INFO, "holdfast"):
        first, second = run(), run()
    MemorySink.clear("told")
    assert (
        f"topology 'told' starts on file:{tmp_path}/store; regions: r; source 'numbers' from the beginning"
        in first
    )
    assert any("source 'numbers' from epoch" in line for line in second)
    assert "rows left out: 1 late in all runs (tens)" in first[-1]


def test_regions_that_are_new_or_gone_are_told(tmp_path: Path) -> None:
    def run(*names: str) -> list[e.TopologyChanged]:
        heard: list[e.RunEvent] = []
        made = hf.Topology("regions")
        for name in names:
            source = made.source(Rows([(1,)], "n long"), name=f"{name}_in").consistent(name, period=0.05)
            source.aggregate("n", seen=hf.count(), name=f"{name}_sums").sink(
                MemorySink(name), name=f"{name}_out"
            )
        run_local(made, f"file:{tmp_path}/store", until="available", subscribers=[heard.append])
        for name in names:
            MemorySink.clear(name)
        return [event for event in heard if isinstance(event, e.TopologyChanged)]

    assert run("a", "b") == []
    assert run("b", "a") == []
    (new,) = run("a", "b", "c")
    assert (new.region, new.epoch, new.gone) == ("c", 0, ())
    assert {"c_in", "c_sums"} <= set(new.new)
    (gone,) = run("a", "b")
    assert (gone.region, gone.new) == ("c", ())
    assert {"c_in", "c_sums"} <= set(gone.gone)
    assert "operator 'c_sums' is gone, nothing reads its state any more" in gone.sentences()


def test_malformed_rows_are_told_with_their_source(tmp_path: Path) -> None:
    def malformed() -> list[tuple[str, int, int]]:
        heard: list[e.RunEvent] = []
        made = hf.Topology("malformed")
        source = hf.Files(str(tmp_path / "in"), "json", "n long", malformed="drop")
        made.source(source, name="lines").consistent("r", period=0.05).sink(
            MemorySink("malformed"), name="out"
        )
        run_local(made, f"file:{tmp_path}/store", until="available", subscribers=[heard.append])
        MemorySink.clear("malformed")
        return [(x.operator, x.rows, x.total) for x in heard if isinstance(x, e.RowsMalformed)]

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\nnonsense\n{"n": "x"}\n')
    assert malformed() == [("lines", 2, 2)]
    assert malformed() == []
    (tmp_path / "in" / "b.json").write_text("nonsense\n")
    assert malformed() == [("lines", 1, 3)]
