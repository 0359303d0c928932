"""Two regions of one run: one fails for ever, and the other's rows are what they would have been, and when."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import RegionParkedError
from holdfast.testing import MemorySink, Rows, submit_local

ROWS = 400


class Fails:
    def process(self, row: Any, port: int) -> Any:
        if row.n >= 20:
            raise ValueError("never")
        return (row.n,)


class Falls:
    """Fails in another way each time, so that it is tried again until resets are used up."""

    count = 0

    def process(self, row: Any, port: int) -> Any:
        if row.n >= 20:
            Falls.count += 1
            raise ValueError(f"number {Falls.count}")
        return (row.n,)


@pytest.mark.parametrize("operator", [Fails, Falls])
@pytest.mark.fault("B07", "O07")
def test_a_region_that_fails_for_ever_costs_the_other_one_nothing(tmp_path: Path, operator: type) -> None:
    made = hf.Topology("apart")
    bad = made.source(Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=5), name="bad")
    bad = bad.consistent("bad", period=0.02, max_consecutive_resets=4).isolate()
    bad.apply(operator, "n long", name="fails").sink(MemorySink("bad"), name="bad_out")
    good = made.source(
        Rows([(n, n % 3) for n in range(ROWS)], "n long, k long", rows_per_step=5), name="good"
    )
    good = good.consistent("good", period=0.02)
    good.aggregate("k", n=hf.count(), s=hf.sum("n"), name="sums").sink(MemorySink("good"), name="good_out")
    job = submit_local(made, f"file:{tmp_path}/store", until="available")
    try:
        with pytest.raises(RegionParkedError, match="region 'bad'"):
            deadline = time.monotonic() + 60
            while not job.await_termination(timeout=0.1):
                assert time.monotonic() < deadline
        status = job.status()["regions"]
        assert status["good"]["resets"] == 0
        assert status["good"]["epoch"] > 0
        assert status["bad"]["phase"] == "parked"
        last = {
            row["k"]: (row["n"], row["s"])
            for row in sorted(MemorySink.rows("good"), key=lambda row: row["n"])
        }
        expected = {k: (len(range(k, ROWS, 3)), sum(range(k, ROWS, 3))) for k in range(3)}
        assert last == expected
        seen = [row["n"] for row in MemorySink.rows("bad")]
        assert sorted(seen) == list(range(len(seen)))
        assert len(seen) <= 20
    finally:
        job.close()
        MemorySink.clear("bad")
        MemorySink.clear("good")
