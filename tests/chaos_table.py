"""`--chaos-table FILE`: one row of Markdown per chaos test with all its cases: what was broken, how many faults fired, how it
ended, how long it took.

Tests and their helpers tell `faults.fired` what broke; of tests that tell nothing the name says what they break. The file
is written anew after each test: what a run of hours has found out is there, however the run ends. Beside it lies FILE with the suffix
`.json`: a line per case. With `--go-on` a run leaves out the cases that passed according to it, and its table tells of both runs;
each case with the version of the program that it ran on. `--passed-before PAGE` leaves out tests that have passed whole by a page's table
(chaos_page.py).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chaos_page import passed_whole, place_of
from faults import FIRED
from sampling import SEED

FAULTS = "faults"
HEADER = "| where | what | faults that fired | result | seconds |\n|---|---|---|---|---:|\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-table", metavar="FILE", type=Path, help="a row per chaos test, as Markdown")
    parser.addoption(
        "--go-on", action="store_true", help="leave out chaos tests that passed by the table's file"
    )
    parser.addoption("--passed-before", metavar="PAGE", type=Path, help="leave out those that its table has")


def pytest_runtest_setup(item: pytest.Item) -> None:
    FIRED.clear()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """They travel with the report, also from other processes."""
    item.user_properties.append((FAULTS, dict(FIRED)))


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--chaos-table")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(path, config.getoption("--go-on")), "chaos table")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every process leaves out the same cases: those that had passed when the run began."""
    path, page = config.getoption("--chaos-table"), config.getoption("--passed-before")
    done: set[str] = set()
    if path is not None and config.getoption("--go-on"):
        done |= set(
            config.workerinput["done"] if hasattr(config, "workerinput") else passed(read_cases(path))
        )
    if page is not None:
        done |= passed_whole(
            page.read_text("utf-8"), [i.nodeid for i in items if i.get_closest_marker("chaos")]
        )
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    path = node.config.getoption("--chaos-table")
    node.workerinput["done"] = passed(read_cases(path)) if path is not None else []


@dataclass
class Case:
    """A test with its parameters, as far as its reports have come."""

    result: str = ""
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    version: str = ""
    """Of the program: a commit."""

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.outcome != "passed" or not self.result:
            self.result = report.outcome
        for name, told in report.user_properties:
            if name == FAULTS:
                self.faults = Counter(told)


def read_cases(path: Path) -> dict[str, Case]:
    """What runs before this one found out, by node id."""
    told = path.with_suffix(".json")
    found = json.loads(told.read_text()) if told.exists() else {}
    return {node: Case(**{**case, "faults": Counter(case["faults"])}) for node, case in found.items()}


def passed(cases: Mapping[str, Case]) -> list[str]:
    return [node for node, case in cases.items() if case.result == "passed"]


def version() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()


class Table:
    """The chaos tests of this run, and of those that it goes on with."""

    def __init__(self, path: Path, go_on: bool = False) -> None:
        self._path = path
        self._cases: dict[str, Case] = read_cases(path) if go_on else {}
        """By node id."""
        self._version = version()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "chaos" in report.keywords:
            if report.when == "setup":
                self._cases[report.nodeid] = Case(version=self._version)
            self._cases[report.nodeid].add(report)
            if report.when == "teardown":
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(f"{self._summary()}\n\n{HEADER}{''.join(self._rows())}")
                told = ",\n".join(
                    f"{json.dumps(node)}: {json.dumps(vars(case))}"
                    for node, case in sorted(self._cases.items())
                )
                self._path.with_suffix(".json").write_text(f"{{\n{told}\n}}\n")

    def _summary(self) -> str:
        cases = self._cases.values()
        versions = ", ".join(sorted({case.version for case in cases}))
        fired = sum((case.faults for case in cases), Counter[str]()).total()
        return (
            f"{dt.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}, version {versions}: {results(cases)}, "
            f"{fired} faults counted, {sum(case.seconds for case in cases) / 3600:.1f} hours, {SEED}={os.environ[SEED]}"
        )

    def _rows(self) -> Iterator[str]:
        tests: dict[str, list[str]] = defaultdict(list)
        for node in sorted(self._cases):
            tests[node.partition("[")[0]].append(node)
        for test, nodes in tests.items():
            cases = [self._cases[node] for node in nodes]
            where, what = place_of(test)
            faults = sum((case.faults for case in cases), Counter[str]())
            told = ", ".join(f"{count} × {what}" for what, count in faults.items()) or "–"
            bad = [
                node.partition("[")[2][:-1] or "it" for node in nodes if self._cases[node].result == "failed"
            ]
            failed = f"; failed: {', '.join(bad)}" if bad else ""
            seconds = sum(case.seconds for case in cases)
            yield f"| {where} | {what} | {told} | {results(cases)}{failed} | {seconds:.0f} |\n"


def results(cases: Iterable[Case]) -> str:
    """How many ended how."""
    counts = Counter(case.result for case in cases)
    return ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
