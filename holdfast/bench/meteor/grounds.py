"""Where windows run: on Spark, or by the local engine, which shows the same without what Spark's jobs cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.bench.measure.place import Place
from holdfast.bench.measure.scratch import scratch
from holdfast.language.topology import Topology
from holdfast.runtime.job import Job, job_of
from holdfast.store.base import Store
from holdfast.testing import submit_local

EngineName = Literal["spark", "local"]
Submit = Callable[[Topology, Store, Sequence[Any]], Job]


@dataclass(frozen=True)
class Grounds:
    """`submit` starts a topology; `settle` comes before each window."""

    engine: EngineName
    root: Path
    submit: Submit
    settle: Callable[[], None]

    def directory(self, prefix: str) -> AbstractContextManager[Path]:
        """A directory for one window."""
        return scratch(prefix, self.root)


def spark_grounds(place: Place) -> Grounds:
    def submit(topology: Topology, store: Store, subscribers: Sequence[Any]) -> Job:
        return job_of(topology.submit(spark=place.session, store=store, subscribers=subscribers))

    return Grounds("spark", place.root, submit, place.settle)


def local_grounds(root: Path) -> Grounds:
    def submit(topology: Topology, store: Store, subscribers: Sequence[Any]) -> Job:
        return submit_local(topology, store, subscribers=subscribers)

    return Grounds("local", root, submit, os.sync)
