"""`--chaos-table FILE`: one row of Markdown per chaos test with all its cases: what was broken, how many faults fired, how it
ended, how long it took.

Tests and their helpers tell `faults.fired` what broke; of tests that tell nothing the name says what they break. The file
is written anew after each test: what a run of hours has found out is there, however the run ends.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from faults import FIRED
from sampling import SEED

FAULTS = "faults"
HEADER = "| where | what | faults that fired | result | seconds |\n|---|---|---|---|---:|\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-table", metavar="FILE", type=Path, help="a row per chaos test, as Markdown")


def pytest_runtest_setup(item: pytest.Item) -> None:
    FIRED.clear()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """They travel with the report, also from other processes."""
    item.user_properties.append((FAULTS, dict(FIRED)))


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--chaos-table")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(path), "chaos table")


@dataclass
class Case:
    """A test with its parameters, as far as its reports have come."""

    result: str = ""
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.outcome != "passed" or not self.result:
            self.result = report.outcome
        for name, told in report.user_properties:
            if name == FAULTS:
                self.faults = Counter(told)


class Table:
    """The chaos tests of this run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cases: dict[str, Case] = {}
        """By node id."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "chaos" in report.keywords:
            self._cases.setdefault(report.nodeid, Case()).add(report)
            if report.when == "teardown":
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(f"{self._summary()}\n\n{HEADER}{''.join(self._rows())}")

    def _summary(self) -> str:
        cases = self._cases.values()
        fired = sum((case.faults for case in cases), Counter[str]()).total()
        return (
            f"{dt.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}: {results(cases)}, "
            f"{fired} faults counted, {sum(case.seconds for case in cases) / 3600:.1f} hours, {SEED}={os.environ[SEED]}"
        )

    def _rows(self) -> Iterator[str]:
        tests: dict[str, list[str]] = defaultdict(list)
        for node in sorted(self._cases):
            tests[node.partition("[")[0]].append(node)
        for test, nodes in tests.items():
            cases = [self._cases[node] for node in nodes]
            path, _, name = test.partition("::")
            where = path.removeprefix("tests/").removesuffix(".py").replace("test_", "")
            faults = sum((case.faults for case in cases), Counter[str]())
            told = ", ".join(f"{count} × {what}" for what, count in faults.items()) or "–"
            bad = [
                node.partition("[")[2][:-1] or "it" for node in nodes if self._cases[node].result == "failed"
            ]
            failed = f"; failed: {', '.join(bad)}" if bad else ""
            seconds = sum(case.seconds for case in cases)
            what = name.removeprefix("test_").replace("_", " ")
            yield f"| {where} | {what} | {told} | {results(cases)}{failed} | {seconds:.0f} |\n"


def results(cases: Iterable[Case]) -> str:
    """How many ended how."""
    counts = Counter(case.result for case in cases)
    return ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
