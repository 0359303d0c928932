"""Small benchmarks share the session of all tests: starting one takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.runtime.engines.spark import session

SETTINGS = ("spark.sql.parquet.outputTimestampType", "spark.sql.adaptive.enabled")
"""What our own sessions have and the shared one has not."""


@pytest.fixture
def shared_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from pyspark.sql import SparkSession

    monkeypatch.setattr("holdfast.bench.measure.place.make_session", lambda *_, **__: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    before = {key: spark.conf.get(key, None) for key in (*SETTINGS, "spark.sql.shuffle.partitions")}
    for key in SETTINGS:
        spark.conf.set(key, session.SETTINGS[key])
    yield
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)
