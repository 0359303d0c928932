"""Small benchmarks share the session of all tests: starting one takes longer than they do."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def shared_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr("holdfast.bench.place.make_session", lambda *_, **__: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
