"""What the event log of a store tells: bounded, the same however it is read, and shown at 80 and 160 columns."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import holdfast as hf
from holdfast.cli.main import run_command
from holdfast.cli.status.top import picture
from holdfast.dashboard import story as stories
from holdfast.dashboard.story import Story
from holdfast.dashboard.watched import KILLED, Watched
from holdfast.store.base import Event
from holdfast.store.urls import open_store
from holdfast.testing import arm, disarm, run_local


def numbers(name: str) -> hf.Topology:
    topology = hf.Topology("numbers")
    rows = [(n % 5, datetime.fromtimestamp(n, UTC)) for n in range(100)]
    source = topology.source(hf.Rows(rows, "k long, at timestamp", rows_per_step=10), name="rows")
    timed = source.consistent("a-region-with-a-name-that-is-quite-long", period=0.02).event_time(
        "at", delay=0
    )
    timed.aggregate("k", window=hf.tumbling(10), n=hf.count(), name="counts").sink(
        hf.MemorySink(name), name="out"
    )
    return topology


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Of a run that went back once, and ended."""
    arm("step.end=raise@5")
    try:
        run_local(numbers("story"), f"file:{tmp_path}/store")
    finally:
        disarm()
        hf.MemorySink.clear("story")
    return f"file:{tmp_path}/store"


def shown(store: str, width: int) -> str:
    watched = Watched(store)
    watched.look()
    console = Console(file=io.StringIO(), width=width)
    console.print(picture(watched, width))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return text


@pytest.mark.parametrize("width", [80, 160])
def test_a_run_that_ended_is_shown(store: str, width: int) -> None:
    text = shown(store, width)
    words = [line.split() for line in text.splitlines()]
    assert "numbers: ended" in text
    (source,) = [line for line in words if line[:1] == ["rows"] and "1970-01-01" in line]
    assert source[2:4] == ["0", "0"], "it gives nothing any more, and nothing waits"
    assert any(line[:1] == ["counts"] and "1970-01-01" in line for line in words), "its watermark"
    assert "goes back to epoch" in text
    elements = [line for line in words if line[:1] == ["rows"] and "ms" in line]
    assert [line[2] for line in elements] == ["0"], "no rate after its end"


def test_a_killed_run_and_a_store_without_one(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = open_store(f"file:{tmp_path}/killed")
    place.open("shop")
    place.acquire()
    watched = Watched(place)
    watched.look()
    assert (watched.alive, watched.state) == (True, "starting")
    status = next(e.data for e in open_store(store).events() if e.kind == "summary")
    place.append_events([("summary", {**status, "state": "running"})])
    watched.look()
    assert watched.state == "running"
    place.release()
    watched.look()
    assert (watched.alive, watched.state) == (False, KILLED)
    assert KILLED in " ".join(shown(f"file:{tmp_path}/killed", 80).split())
    assert run_command(["top", f"file:{tmp_path}/killed"]) == 0
    assert "numbers" in capsys.readouterr().out
    assert run_command(["top", "ftp://x"]) == 3


def test_it_does_not_matter_how_a_log_is_read(store: str) -> None:
    events = open_store(store).events()
    whole = Story()
    whole.add(events)
    assert whole.number == events[-1].number
    assert json.loads(json.dumps(whole.as_dict())) == whole.as_dict()
    pieces, rest = Story(), list(events)
    while rest:
        cut = random.randint(1, len(rest))
        pieces.add(rest[:cut])
        rest = rest[cut:]
    assert pieces.as_dict() == whole.as_dict()
    (epochs,) = whole.epochs.values()
    assert sorted({epoch["epoch"] for epoch in epochs}) == [epoch["epoch"] for epoch in epochs]
    assert all(epoch["visible_ms"] >= epoch["ms"] > 0 for epoch in epochs)
    assert [moment["level"] for moment in whole.moments if moment["kind"] == "reset.begin"] == [
        "plain",
        "costs",
    ]


def test_restores_stand_beside_what_was_foreseen_of_them(store: str) -> None:
    story = Story()
    told = story.add(open_store(store).events())
    (restores,) = story.as_dict()["restores"].values()
    assert [change["restore"] for change in told if "restore" in change] == restores
    assert len(restores) == 2
    begun, back = restores
    assert begun["because"].startswith("the run begins")
    assert "FaultInjected" in back["because"]
    assert all(restore["s"] >= 0 and restore["predicted_s"] >= 0 for restore in restores)
    assert back["within_s"] is None, "the program allows any"


def test_a_story_is_bounded_and_takes_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "EPOCHS_KEPT", 3)
    story = Story()
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("epoch.published", {"region": "r", "epoch": 1}),
        ("epoch.visible", {"region": "r", "epoch": 99, "published_ms": 1.0, "visible_ms": 2.0}),
        ("region.parked", {"region": "r", "reason": "100 % full"}),
        ("of.a.later.version", {"x": 1}),
        ("summary", {"left_out_bytes": 100_000}),
        ("mail.refused", {"reason": "x"}),
    ]
    for number in range(3000):
        kind, data = kinds[number % len(kinds)]
        story.add([Event(number, float(number), kind, data)])
    assert len(story.epochs["r"]) == 3
    assert len(story.moments) == stories.MOMENTS_KEPT
    assert story.moments[-1]["level"] == "bad"
    assert "100 % full" in story.moments[-1]["text"]
    assert story.status is None
