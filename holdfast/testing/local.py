"""`run_local`: run a topology without Spark, in this process."""

from __future__ import annotations

from typing import Any

from holdfast.language.run import RunStatus, Until
from holdfast.language.topology import Topology
from holdfast.runtime.api import run_and_restart
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.job import Job
from holdfast.store.urls import open_store


def run_local(
    topology: Topology,
    store: Any = None,
    until: Until | None = "available",
    partitions: int = 2,
    **options: Any,
) -> RunStatus:
    """Run to the end and return the final status. Operators made of Spark expressions need real Spark."""
    on_start = options.pop("on_start", None)
    return run_and_restart(
        lambda changed: submit_local(topology, store, until, partitions, **{**options, **changed}), on_start
    )


def submit_local(
    topology: Topology, store: Any = None, until: Until | None = None, partitions: int = 2, **options: Any
) -> Job:
    """Start and return a handle, like `topology.submit`."""
    place = None if store is None else open_store(store)
    engine = LocalEngine(partitions)
    try:
        return Job(topology.graph(), engine, place, until=until, **options).start()
    except BaseException:
        engine.stop()
        raise
