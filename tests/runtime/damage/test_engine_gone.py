"""When Spark itself is gone no reset helps: the run ends at once and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import EngineGoneError
from holdfast.language.connectors import Slice, Source, Stamp
from holdfast.language.topology import Topology
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.job import Job
from holdfast.sinks import MemorySink
from holdfast.sources import Rows
from holdfast.store.urls import open_store


class DyingEngine(LocalEngine):
    """Dies in its third step, as a driver's JVM does."""

    reads = 0
    gone = False

    def read(self, source: Source, piece: Slice, stamp: Stamp | None) -> Any:
        self.reads += 1
        if self.reads == 3:
            self.gone = True
            raise ConnectionRefusedError("nobody listens")
        return super().read(source, piece, stamp)

    def is_alive(self) -> bool:
        return not self.gone


@pytest.mark.parametrize("in_region", [True, False])
@pytest.mark.fault("P10")
def test_a_dead_engine_ends_the_run_without_useless_resets(in_region: bool, tmp_path: Path) -> None:
    topology = Topology("t")
    stream = topology.source(Rows([(i,) for i in range(100)], "n long", rows_per_step=10), name="rows")
    (stream.consistent(name="r", period=5) if in_region else stream).sink(MemorySink("gone"), name="out")
    engine = DyingEngine()
    job = Job(topology.graph(), engine, open_store(str(tmp_path / "store")), until="available").start()
    with pytest.raises(EngineGoneError, match="nobody listens"):
        job.await_termination(timeout=30)
    assert engine.reads == 3
    assert all(region["resets"] == 0 for region in job.status()["regions"].values())
