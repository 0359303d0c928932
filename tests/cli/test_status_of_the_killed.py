"""`holdfast status`, `top` and the page of a run that was killed: they do not say that it runs or that anything is under way, and
know every published epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.main import run_command
from holdfast.cli.status.store_status import read_status
from holdfast.dashboard.watched import Watched
from holdfast.errors import ConfigError
from holdfast.store.urls import open_store
from holdfast.testing import run_local


def test_a_killed_run_is_not_called_running(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    store = open_store(url)
    store.open("shop")
    store.acquire()
    store.append_events([("summary", {"state": "running", "regions": {"r": {"epoch": 0}}})])
    store.append_events([("epoch.published", {"region": "r", "epoch": 1})])
    store.release()
    found = read_status(url)
    assert not found["alive"]
    assert found["summary"]["state"].startswith("killed")
    assert found["summary"]["regions"]["r"]["epoch"] == 1


@pytest.fixture
def killed(tmp_path: Path) -> str:
    """A store whose owner was killed while an epoch was under way, behind one that its last summary does not know."""
    topology = hf.Topology("shop")
    rows = topology.source(hf.Rows([(1,), (2,)], "n long"), name="rows").consistent("books")
    rows.sink(hf.MemorySink("killed"), name="out")
    status: dict[str, Any] = run_local(topology, f"file:{tmp_path}/before").as_dict()
    hf.MemorySink.clear("killed")
    held_up = [{"element": "rows", "what": "it has not begun: step", "seconds": 4.0}]
    status["regions"]["books"] |= {
        "phase": "establishing", "epoch": 7, "under_way": {"epoch": 8, "seconds": 5.0, "held_up_by": held_up},
    }  # fmt: skip
    status["elements"]["rows"] |= {"waiting": "step", "rows_per_s": 100}
    elements = {f"e{number}": {"begun": 1.0} for number in range(500)}
    store = open_store(f"file:{tmp_path}/store")
    store.open("shop")
    store.acquire()
    store.append_events([("summary", {**status, "state": "running"})])
    store.append_events(
        [
            ("epoch.published", {"region": "books", "epoch": 8, "attempt": 1, "ms": 5.0, "bytes": 10}),
            (
                "epoch.visible",
                {"region": "books", "epoch": 8, "published_ms": 5.0, "visible_ms": 6.0, "elements": elements},
            ),
        ]
    )
    store.release()
    return store.url


@pytest.mark.parametrize("command", ["status", "top"])
def test_nothing_is_under_way_in_a_dead_run(
    killed: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([command, killed]) == 0
    said = capsys.readouterr().out
    words = [line.split() for line in said.splitlines()]
    (region,) = [line for line in words if line[:2] == ["books", "async"]]
    assert region[2:4] == ["over", "8"]
    (element,) = [line for line in words if line[:1] == ["rows"] and "ms" in line]
    assert (element[2], element[-1]) == ("0", "—")
    assert "under way" not in said
    assert "held up" not in said
    assert "running" not in said


def test_the_page_knows_the_newest_epoch_of_a_dead_run(killed: str) -> None:
    watched = Watched(killed)
    watched.look()
    assert watched.story.status is not None
    assert watched.story.status["regions"]["books"]["epoch"] == 8
    assert watched.story.epochs["books"][-1]["epoch"] == 8


def test_recent_events_are_sentences(killed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an epoch with 500 elements not all of their times."""
    assert run_command(["status", killed]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "region 'books' published epoch 8 in 5 ms, 10 bytes" in said
    assert "e499" not in said


def test_what_is_no_store_is_called_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop.py").write_text("")
    with hf.Log(tmp_path / "log") as log:
        log.append([{"n": 1}])
    for place, said in (("shop.py", "is a file, not a directory"), ("log", "is a log, not a store")):
        for command in ("status", "top", "ui", "stop"):
            assert run_command([command, f"{tmp_path}/{place}"]) == ConfigError.exit_code
            assert said in " ".join(capsys.readouterr().err.split())
