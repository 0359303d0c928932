"""The pytest plug-in, found by itself where holdfast is installed: a shared Spark session, and runs of topologies in tests.

Imports nothing large: every pytest of that environment loads it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing.trial import Trial

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def holdfast_spark() -> Iterator[Any]:
    """One small session for all tests that need one; the active one if there is one."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.master("local[2]").appName("holdfast tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def holdfast_run(request: pytest.FixtureRequest) -> Any:
    """`holdfast.testing.run`; topologies that need Spark run on `holdfast_spark`."""

    def run(topology: Any, *arguments: Any, **options: Any) -> Trial:
        from holdfast.operators.kinds import only_spark_knows
        from holdfast.testing.trial import run as run_here

        needs = any(only_spark_knows(op) for op in topology.graph().operators.values())
        if needs and options.get("spark") is None:
            options["spark"] = request.getfixturevalue("holdfast_spark")
        return run_here(topology, *arguments, **options)

    return run
