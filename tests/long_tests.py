"""Which long tests a run takes: all of them in `make chaos`, in `make test` as many as fit into DRAWN_S.

How long a test takes is measured, not declared: `make test PYTEST_ARGS=--measure` writes what ran for LONG_S and more, all its cases
together, into `long_tests.json`. A test that is not there runs always, and so does one that is marked `always`, because
each run shall show what it shows. Of the others each file gives one before any gives a second, so that every run has something of everything.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sampling import ASKED, draw

DRAWN_S = 270
"""What `make test` spends on long tests, in seconds of one process beside two others."""
LONG_S = 3
MEASURED = Path(__file__).with_suffix(".json")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure", action="store_true", help=f"note in {MEASURED.name} which tests are long")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measuring(), "long tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests that were not drawn are chaos tests; if those are asked for, so are all long ones."""
    here: dict[str, list[pytest.Item]] = defaultdict(list)
    measured = read()
    for item in items:
        if not item.get_closest_marker("always") and (name := test_of(item.nodeid)) in measured:
            here[name].append(item)
    drawn = set() if ASKED.everything else drawn_tests({name: measured[name] for name in here})
    for name in here.keys() - drawn:
        for item in here[name]:
            item.add_marker(pytest.mark.chaos)


def drawn_tests(seconds: Mapping[str, float]) -> set[str]:
    """In a random order, one per file, then a second one per file, and so on: each that still fits."""
    files: dict[str, list[str]] = defaultdict(list)
    names = sorted(seconds)
    for number in draw("long tests", None, range(len(names)), len(names)):
        files[names[number].partition("::")[0]].append(names[number])
    left, drawn = float(DRAWN_S), set()
    for turn in range(max(map(len, files.values()), default=0)):
        for name in (tests[turn] for tests in files.values() if turn < len(tests)):
            if seconds[name] <= left:
                left -= seconds[name]
                drawn.add(name)
    return drawn


class Measuring:
    """Adds up what tests take; keeps what is known of tests that did not run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[test_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        MEASURED.write_text(json.dumps(merged(read(), self.seconds), indent=1) + "\n")


def merged(known: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """What was found counts more than what was known."""
    long = {name: round(s, 1) for name, s in found.items() if s >= LONG_S}
    return dict(sorted({**{n: s for n, s in known.items() if n not in found}, **long}.items()))


def read() -> dict[str, float]:
    known: dict[str, Any] = json.loads(MEASURED.read_text())
    return known


def test_of(node: str) -> str:
    """A test with all its cases has one name."""
    return node.partition("[")[0]
