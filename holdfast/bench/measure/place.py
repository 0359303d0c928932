"""Where a benchmark runs: one Spark session, one scratch directory, one console."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.bench.measure.scratch import scratch
from holdfast.runtime.engines.spark.session import make_session

SETTINGS = {"spark.driver.memory": "4g", "spark.driver.extraJavaOptions": "-Xms4g"}
"""The heap has its size from the beginning: one that shrinks after a stretch lets the collector run all through the next."""


@dataclass(frozen=True)
class Place:
    """What all stretches of a benchmark share."""

    session: SparkSession
    root: Path
    console: Console

    def directory(self, prefix: str) -> AbstractContextManager[Path]:
        """A directory for one stretch."""
        return scratch(prefix, self.root)

    def settle(self) -> None:
        """Before a stretch: what the one before left behind is not paid for by the next, and Python workers are up.
        (Spark lets them die after a minute without work: while the other sides have their turn.) Left behind are pages not
        written yet, and state stores of queries that have ended, which Structured Streaming tends for another minute."""
        jvm(self.session).org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        jvm(self.session).System.gc()
        os.sync()
        workers = self.session.sparkContext.defaultParallelism
        self.session.range(0, workers, 1, workers).mapInArrow(_wake, "id long").collect()
        self.session.sparkContext.parallelize(range(workers), workers).mapPartitions(_wake).collect()

    def configuration(self, **more: Any) -> Mapping[str, Any]:
        """What a reader must know to judge the figures."""
        return {
            "master": self.session.sparkContext.master,
            "cores": os.cpu_count(),
            "spark": self.session.version,
            **SETTINGS,
            **more,
        }


def jvm(session: SparkSession) -> Any:
    """Java's side of a session, for what PySpark does not offer."""
    return session._jvm


def _wake(rows: Iterable[Any]) -> Iterator[Any]:
    """In a worker: import what steps need, and stay long enough for the other task to need a worker of its own."""
    import holdfast.operators.kinds
    import holdfast.runtime.engines.spark.stage
    import holdfast.sinks.files
    import holdfast.sources.files  # noqa: F401

    time.sleep(0.05)
    yield from rows


@contextmanager
def bench_place(quiet: bool, settings: Mapping[str, str] | None = None) -> Iterator[Place]:
    """A session and a scratch directory that end with the benchmark."""
    with scratch() as root:
        session = make_session("holdfast bench", settings={**SETTINGS, **(settings or {})})
        try:
            yield Place(session, root, Console(stderr=True, quiet=quiet))
        finally:
            session.stop()
