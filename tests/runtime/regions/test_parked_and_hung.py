"""A region that parks because an operator does not return says which, and its run ends at once all the same."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import RegionParkedError
from holdfast.testing import MemorySink, Rows, submit_local

AT_ONCE_S = 8.0
"""Not the 30 s that a run waits for threads that may still end."""


class Hangs:
    release = threading.Event()

    def process(self, row: Any, port: int) -> Any:
        if row.n >= 5:
            Hangs.release.wait(120)
        return (row.n,)


@pytest.fixture
def let_go() -> Iterator[None]:
    Hangs.release.clear()
    yield
    Hangs.release.set()


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
@pytest.mark.fault("P05", "R01", "O07")
def test_the_reason_names_operator_and_connection_and_the_run_ends_at_once(
    mode: Any, shelf: str, let_go: None
) -> None:
    made = hf.Topology("hung")
    rows = made.source(Rows([(n,) for n in range(20)], "n long", rows_per_step=5), name="rows")
    rows = rows.consistent("r", mode=mode, period=0.05, drain_timeout=0.4, max_consecutive_resets=1)
    rows.isolate().apply(Hangs, "n long", name="hangs").sink(MemorySink(shelf), name="out")
    job = submit_local(made, "memory:" + re.sub(r"\W", "_", shelf), until="available")
    began = time.monotonic()
    while not job.regions[next(iter(job.regions))].parked:
        assert time.monotonic() < began + 60
        time.sleep(0.01)
    reason = job.status()["regions"]["r"]["reason"]
    assert re.search(r"timed out; hangs: .*hangs", reason), reason
    began = time.monotonic()
    with pytest.raises(RegionParkedError, match="hangs"):
        job.await_termination(timeout=60)
    job.close()
    assert time.monotonic() - began < AT_ONCE_S
