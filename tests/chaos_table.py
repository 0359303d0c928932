"""`--chaos-table FILE`: one row of Markdown per chaos test: what was broken, how many faults fired, how it ended.

A test that counts its faults tells them to the fixture `faults`; of the others the name says what they break. The file is
written anew after each test: what a run of hours has found out is there, however the run ends.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sampling import SEED

FAULT = "fault"
HEADER = "| where | what | faults that fired | result | seconds |\n|---|---|---|---|---:|\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-table", metavar="FILE", type=Path, help="a row per chaos test, as Markdown")


@pytest.fixture
def faults(record_property: Callable[[str, Any], None]) -> Callable[..., None]:
    """faults(what, count) notes faults that fired, for the table."""
    return lambda what, count=1: record_property(FAULT, (what, count))


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--chaos-table")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(path), "chaos table")


@dataclass
class Row:
    """A test, as far as its reports have come."""

    seconds: float = 0.0
    result: str = ""
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.outcome != "passed" or not self.result:
            self.result = report.outcome
        if report.when == "teardown":  # it carries all that was told
            for name, told in report.user_properties:
                if name == FAULT:
                    what, count = told
                    self.faults[what] += count

    def line(self, test: str) -> str:
        path, _, name = test.partition("::")
        where = path.removeprefix("tests/").removesuffix(".py").replace("test_", "")
        what = name.removeprefix("test_").replace("_", " ").replace("|", "\\|")
        told = ", ".join(f"{count} × {kind}" for kind, count in self.faults.items() if count) or "–"
        result = self.result if self.result == "passed" else f"**{self.result}**"
        return f"| {where} | {what} | {told} | {result} | {self.seconds:.0f} |\n"


class Table:
    """Rows of the chaos tests of this run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, Row] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "chaos" in report.keywords:
            self._rows.setdefault(report.nodeid, Row()).add(report)
            if report.when == "teardown":
                self._write()

    def _write(self) -> None:
        results = Counter(row.result for row in self._rows.values())
        fired = sum(row.faults.total() for row in self._rows.values())
        hours = sum(row.seconds for row in self._rows.values()) / 3600
        told = ", ".join(f"{count} {result}" for result, count in sorted(results.items()))
        lines = [row.line(test) for test, row in sorted(self._rows.items())]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(
            f"{dt.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}: {len(lines)} tests, "
            f"{told}, {fired} faults counted, {hours:.1f} hours, {SEED}={os.environ[SEED]}\n\n{HEADER}{''.join(lines)}"
        )
