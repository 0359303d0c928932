"""What comes from outside and reaches a terminal: shown as it is, neither markup nor commands."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from rich.table import Table

from holdfast.cli import logs, terminal
from holdfast.cli.main import run_command
from holdfast.cli.status.show import show_store
from holdfast.store.urls import open_store

EVIL = "[/data/in] \x1b]0;owned\x07\x1b[2J\x9b31m [bold]x[/] :smile: \u202eback \udc80"


def summary(**changes: Any) -> dict[str, Any]:
    region = {
        "phase": "parked", "epoch": 3, "age_s": 1.0, "last_epoch_ms": 2.0, "resets": 5, "reason": EVIL, "mode": "async",
    }  # fmt: skip
    element = {"rows": 1, "rows_per_s": 0, "steps": 1, "last_step_ms": 1, "failures": 0, "waiting": EVIL}
    return {
        "topology": EVIL, "state": "running", "uptime_s": 1.0, "regions": {EVIL: region}, "elements": {EVIL: element}, **changes,
    }  # fmt: skip


def told(summary: Any, capsys: pytest.CaptureFixture[str]) -> str:
    event = {"number": 1, "wall": 0.0, "kind": EVIL, "reason": EVIL}
    owner = {"token": 1, "pid": EVIL, "host": EVIL}
    show_store({"store": EVIL, "owner": owner, "alive": True, "summary": summary, "events": [event]})
    return capsys.readouterr().out


@pytest.mark.fault("SR19")
def test_nothing_of_a_status_is_markup_or_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(summary(), capsys)
    assert not terminal._COMMANDS.search(shown)
    assert "[/data/in]" in shown
    assert "\\x1b" in shown
    assert "🙂" not in shown


@pytest.mark.parametrize(
    "changes",
    [
        {"regions": 5},
        {"regions": {"r": {}}},
        {"elements": {"e": None}},
        {"loss_budgets": {"b": {"share": "x"}}},
    ],
)
def test_a_summary_that_nobody_wrote_is_told_as_one(changes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "summary cannot be read" in told(summary(**changes), capsys)


@pytest.mark.fault("SR19")
def test_the_command_shows_a_store_whose_events_are_hostile(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(tmp_path / "store")
    store.open("t")
    store.acquire()
    store.append_events([("summary", summary()), ("summary", {"regions": 7}), (EVIL, {"reason": EVIL})])
    store.release()
    assert run_command(["status", str(tmp_path / "store")]) == 0
    assert not terminal._COMMANDS.search(capsys.readouterr().out)


@pytest.mark.fault("SR19")
def test_errors_and_logs_are_plain_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["status", f"nope{EVIL}:x"]) in (3, 6)
    with logs.to_stderr("info", as_json=False, live=False):
        logging.getLogger("holdfast.run").warning("operator %s failed", EVIL)
    err = capsys.readouterr().err
    assert not terminal._COMMANDS.search(err)
    assert "[/data/in]" in err


def test_a_table_of_rows_is_plain() -> None:
    out = io.StringIO()
    table = Table("a", title=EVIL)
    table.add_row(EVIL)
    terminal.console(file=out, width=200, force_terminal=True, color_system=None).print(table)
    assert not terminal._COMMANDS.search(out.getvalue())
