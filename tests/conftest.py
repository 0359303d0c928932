"""One small Spark session for all tests that need no process of their own, and who runs first."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

pytest_plugins = [
    "sampling",
    "long_tests",
    "told_tables",
    "chaos_table",
    "eager_workers",
    "fast_places",
    "postgres_server",
]

# Every other small step is done in the driver, the others are jobs: what a test finds must hold for any mixture.
os.environ.setdefault("HOLDFAST_SMALL_STEPS", "turns")

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
