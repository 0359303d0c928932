"""Workers of Spark that cost a fork and no imports, in every session that tests and their children start.

In `make test` only: `make chaos` runs with Spark's own daemon, as users do, and so does a test whose children get
`without_eager_workers` for their environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

GIVEN = "PYSPARK_SUBMIT_ARGS"
ARGUMENTS = "--conf spark.python.daemon.module=holdfast.runtime.engines.spark.eager_daemon pyspark-shell"


def pytest_configure(config: pytest.Config) -> None:
    """Processes of xdist and children inherit it."""
    if "not chaos" in config.option.markexpr:
        os.environ.setdefault(GIVEN, ARGUMENTS)


def without_eager_workers(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if (name, value) != (GIVEN, ARGUMENTS)}
