"""What tests tell: tables of kills, of faults, of simulated schedules. They go to `--tables FILE`, build/test-tables.txt if
none is named, and to the terminal with `-v`. So the end of a run is short: the slowest tests, what failed and why, the count.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOLD: dict[str, list[str]] = {}
"""Title → lines. Tests run in several processes; those of the others come when they end."""

FILE = Path("build", "test-tables.txt")
REASON_WIDTH = 200
"""Characters of the line that says which test failed and why; names of tests alone are often longer than a terminal."""


@pytest.fixture
def tell() -> Callable[..., None]:
    """tell(title, *lines) adds lines to the tables of this run."""
    return lambda title, *lines: TOLD.setdefault(title, []).extend(lines)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tables", metavar="FILE", type=Path, help=f"where tables of tests go, instead of {FILE}"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process of its own: hand over what was told."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["told"] = TOLD


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for title, lines in getattr(node, "workeroutput", {}).get("told", {}).items():
        TOLD.setdefault(title, []).extend(lines)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Comes before the slowest tests and the lines of those that failed, which are given room for their reasons."""
    if TOLD:
        path = config.rootpath / (config.getoption("--tables") or FILE)
        write(path)
        terminalreporter.write_line(f"tables of {len(TOLD)} kinds of tests are in {path}")
        if config.option.verbose > 0:
            terminalreporter.write(path.read_text("utf-8"))
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter._tw.fullwidth = max(terminalreporter._tw.fullwidth, REASON_WIDTH)


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = ("\n".join([f"--- {title} ---", *lines, ""]) for title, lines in TOLD.items())
    path.write_text("\n".join(tables), "utf-8")
