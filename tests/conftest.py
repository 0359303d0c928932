"""One small Spark session for all tests that need no process of their own, and what tests tell at the end of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest_plugins = ["sampling", "chaos_table", "postgres_server"]

SESSION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.wholeStage": "false",  # hundreds of tiny plans: compiling each costs more than running it
}


@pytest.fixture(scope="session")
def spark() -> Any:
    """A session as a user would bring it along."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("holdfast-tests")
    for key, value in SESSION.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process is left with a long one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


# --- tables at the end of the run -----------------------------------------------------------------------------------

TOLD: dict[str, list[str]] = {}
"""Title → lines. Tests run in several processes; those of the others come when they end."""


@pytest.fixture
def tell() -> Callable[..., None]:
    """tell(title, *lines) adds lines to the report at the end of the test run."""
    return lambda title, *lines: TOLD.setdefault(title, []).extend(lines)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process of its own: hand over what was told."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["told"] = TOLD


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for title, lines in getattr(node, "workeroutput", {}).get("told", {}).items():
        TOLD.setdefault(title, []).extend(lines)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for title, lines in TOLD.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
