"""What people see of a run at its end and in `holdfast status`: what it left out, in 80 columns."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.main import run_command
from holdfast.cli.status.show import show_status
from holdfast.runtime.metrics import costs
from holdfast.testing import MemorySink, Rows, arm, disarm, run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def run(here: Path, seconds: list[int]) -> dict[str, Any]:
    topology = hf.Topology("shown")
    rows = [(BEGIN + datetime.timedelta(seconds=s), s) for s in seconds]
    source = topology.source(Rows(rows, "at timestamp, n long", rows_per_step=1), name="numbers")
    once = source.consistent("a_region_with_quite_a_long_name", period=0.05).dedup("n", name="once")
    tens = once.aggregate("n", window=hf.tumbling(10, on="at", delay=0), seen=hf.count(), name="tens")
    tens.sink(MemorySink("shown"), name="out")
    status = run_local(topology, f"file:{here}/store").as_dict()
    MemorySink.clear("shown")
    return status


def test_rows_that_were_left_out_are_shown_and_late_ones_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status(run(tmp_path, [0, 30, 30, 1]))
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert ["once", "dropped", "in", "all", "runs", "1"] in lines
    assert ["tens", "late", "in", "all", "runs", "1"] in lines
    assert [line for line in lines if line[:1] in (["sink"], ["out"])] == [["sink", "rows"], ["out", "1"]]
    assert shown.rstrip().endswith("warning: rows were left out: 1 late in all runs (tens)")
    assert max(map(len, shown.splitlines())) <= 80
    assert run_command(["status", f"{tmp_path}/store"]) == 0
    told = capsys.readouterr().out
    assert ["tens", "late", "in", "all", "runs", "1"] in [line.split() for line in told.splitlines()]
    assert max(map(len, told.splitlines()[1:])) <= 80


def test_nothing_is_said_of_rows_when_all_are_where_they_belong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status(run(tmp_path, [0, 10, 20]))
    shown = capsys.readouterr().out
    assert "left out" not in shown
    assert "warning" not in shown
    heads = ["region", "mode", "phase", "epoch", "age", "took", "slow", "restore", "resets"]
    assert heads in [line.split() for line in shown.splitlines()], "in one line each"


def test_lost_rows_are_shown_for_their_element_and_their_sinks(capsys: pytest.CaptureFixture[str]) -> None:
    element = {
        "rows": 10, "rows_per_s": 0, "steps": 1, "last_step_ms": 1.0, "failures": 1, "lost_rows": 4, "waiting": "",
    }  # fmt: skip
    status = {
        "topology": "t",
        "state": "ended",
        "uptime_s": 1.0,
        "regions": {},
        "elements": {"clicks": element},
    }
    show_status({**status, "lost_rows": {"out": 7, "other": 0}})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["clicks", "lost", "in", "all", "runs", "4"] in lines
    assert ["out", "lost", "in", "all", "runs", "7"] in lines
    assert not [line for line in lines if line[:1] == ["other"]]


def test_a_changed_topology_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = run(tmp_path, [0, 10])
    region = status["regions"]["a_region_with_quite_a_long_name"]
    region["topology_changed"] = {
        "region": "r",
        "epoch": 3,
        "changed": {"tens": {"new": ["most"], "gone": []}},
    }
    show_status(status)
    shown = " ".join(capsys.readouterr().out.split())
    assert "operator 'tens' is taken over with changes: most begins with nothing" in shown


def test_only_rows_that_were_left_out_are_told_as_such() -> None:
    counts = {
        "sums": {"keys": 7, "state_bytes": 35, "late": 1, "without_time": 2, "group_rows": 262_144},
        "lines": {"received": 5_000, "malformed": 3},
    }
    told = [
        "1 late in all runs (sums)",
        "2 without time in all runs (sums)",
        "3 malformed in all runs (lines)",
    ]
    assert costs({"elements": {"e": {"counts": counts}}}) == told


def test_a_loss_of_an_earlier_run_is_not_told_as_one_of_this_run(tmp_path: Path) -> None:
    """Elements keep their accounts over all runs."""

    def told() -> list[str]:
        topology = hf.Topology("loses")
        rows = topology.source(Rows([(n,) for n in range(3)], "n long", rows_per_step=1), name="numbers")
        rows.sink(MemorySink("loses"), name="out")
        return costs(run_local(topology, f"file:{tmp_path}/store").as_dict())

    arm("step.end=raise@2")
    try:
        first = told()
    finally:
        disarm()
    assert first == ["1 lost in all runs (numbers)", "1 lost in all runs (out)"]
    assert told() == first
    MemorySink.clear("loses")
