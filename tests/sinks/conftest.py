"""One small Spark session for all tests here (shared with tests/sources through getOrCreate)."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("holdfast-tests")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.codegen.wholeStage": "false",  # hundreds of tiny plans: compiling each costs more than running it
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
