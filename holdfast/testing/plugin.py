"""The pytest plug-in, found by itself where holdfast is installed: a shared Spark session, and runs of topologies in tests.

Imports nothing large: every pytest of that environment loads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing.trial import Trial


@pytest.fixture(scope="session")
def holdfast_spark() -> Iterator[Any]:
    """One small session for all tests that need one; the active one if there is one."""
    from holdfast.runtime.engines.spark.session import active_or_new

    session, owned = active_or_new("holdfast tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    if owned:
        session.stop()


@pytest.fixture
def holdfast_run(request: pytest.FixtureRequest) -> Any:
    """`holdfast.testing.run`; topologies that need Spark run on `holdfast_spark`."""

    def run(topology: Any, *arguments: Any, **options: Any) -> Trial:
        from holdfast.operators.kinds import needs_spark
        from holdfast.testing.trial import run as run_here

        if needs_spark(topology.graph()) and options.get("spark") is None:
            options["spark"] = request.getfixturevalue("holdfast_spark")
        return run_here(topology, *arguments, **options)

    return run
