"""Heavy work in the driver is told once, with its rate."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.clock import ManualClock
from holdfast.runtime.runs.hosted import driver_load
from holdfast.runtime.runs.hosted.driver_load import DriverLoad
from holdfast.testing.local import run_local

TABLE = pa.table({"n": pa.array(range(100_000), pa.int64())})


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "heavy work" in r.getMessage()]


@pytest.mark.parametrize(("every_s", "wanted"), [(1.0, 1), (4.0, 0)])
def test_a_high_rate_is_told_once(every_s: float, wanted: int, caplog: pytest.LogCaptureFixture) -> None:
    """100,000 rows of 8 bytes each time, for 100 times."""
    clock = ManualClock()
    load = DriverLoad("py", clock.monotonic)
    for _ in range(100):
        clock.advance(every_s)
        load.add(TABLE, TABLE.num_rows)
    assert len(told(caplog)) == wanted
    if wanted:
        assert "operator 'py'" in told(caplog)[0]
        assert "100000 rows/s, 4 MB so far" in told(caplog)[0]


def test_many_bytes_are_told_however_slow_they_come(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    load = DriverLoad("py", clock.monotonic)
    for _ in range(300):
        clock.advance(1000)
        load.add(TABLE, TABLE.num_rows // 2)
    assert len(told(caplog)) == 1
    assert "50 rows/s, 105 MB so far" in told(caplog)[0]


class Passes(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return row


def test_a_run_tells_it(tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(driver_load, "BYTES", 500)
    topology = hf.Topology("load")
    rows = topology.source(hf.Rows([(n,) for n in range(100)], "n long", rows_per_step=10), name="rows")
    rows.apply(Passes, "n long", name="py").sink(hf.MemorySink("load"), name="out")
    with caplog.at_level(logging.WARNING, "holdfast.element"):
        run_local(topology)
    assert len(told(caplog)) == 1
    hf.MemorySink.clear("load")
