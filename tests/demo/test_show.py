"""What people see can be drawn on an ordinary terminal, and says what is wrong when something is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from holdfast.demo.feeder import Feeder
from holdfast.demo.show import Display, closing_words, guarantee_table, kill_table
from holdfast.demo.watch import Watch


def difference(rows: int, first: str = "") -> dict[str, Any]:
    return {"rows": rows, "missing": 0, "duplicated": 0, "different": 0, "first": first}


def result(equal: bool = True) -> dict[str, Any]:
    same = {name: difference(74_643) for name in ("payments", "accounts")}
    kill = {"kind": "driver", "epoch": 6, "ticks": 9, "effect": "driver restarted", "rows_replayed": 10_748}
    return {
        "golden_equal": equal, "kills": 1, "resets": 1, "restarts": 1, "epochs": 9, "seed": 4, "seconds": 100.0,
        "exactly_once": same if equal else {**same, "payments": difference(1, "order 3 is missing")},
        "at_least_once": {"missing": 0, "duplicates": 58_171, "strange": 0, "rows": 132_814},
        "best_effort": {"lost": 3_000, "counted": 4_000, "duplicates": 0, "strange": 0, "rows": 118_500},
        "kept": {"exactly_once": equal, "at_least_once": True, "best_effort": True},
        "golden": {**same, "notifications": difference(74_643), "clicks": difference(121_500)},
        "kill_log": [{**kill, "recovered_s": 24.5}, {**kill, "kind": "worker", "recovered_s": None}],
    }  # fmt: skip


def drawn(what: Any, width: int = 80) -> str:
    console = Console(width=width, record=True, file=sys.stderr)
    console.print(what)
    return console.export_text()


def test_the_tables_fit_into_eighty_columns() -> None:
    table = drawn(guarantee_table(result()))
    for word in (
        "exactly-once",
        "at-least-once",
        "best effort",
        "notifications",
        "58,171",
        "(4,000 counted)",
    ):
        assert word in table
    assert "driver and JVM" in drawn(kill_table(result()))


def test_rows_that_were_counted_but_not_lost_are_explained() -> None:
    assert "1,000 had been written" in closing_words(result())
    assert "Every promise was kept. Repeat this run with --seed 4." in closing_words(result())


def test_a_broken_promise_is_named_with_the_first_difference() -> None:
    words = closing_words(result(equal=False))
    assert "A PROMISE WAS BROKEN" in words
    assert "order 3 is missing" in words


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_works_with_and_without_a_terminal(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    display = Display(quiet=False)
    feeder = Feeder(tmp_path / "pool", tmp_path / "in", ticks=4, pause_s=1.0)
    display.progress(Watch("memory:none"), feeder, [], 5, "killing")
    display.end_progress()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "0/5" in shown.err if terminal else "kills 0/5" in shown.err
