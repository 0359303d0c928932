"""Threads, points, and a replayable start in one graph on Spark, with a failure in the middle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import holdfast as hf
from holdfast.testing import arm, disarm

ROWS = 400


class Count(hf.Operator):
    """Makes rows by itself, and cannot do it again: `replayable` behind it helps."""

    def __init__(self) -> None:
        self.n = 0

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                if self.n == ROWS:
                    return
                context.submit({"n": self.n})
                self.n += 1
            time.sleep(0.001)


class Fives(hf.Operator):
    """Sums of five rows; in between it cannot be checkpointed."""

    def __init__(self) -> None:
        self._five: list[int] = []

    def may_checkpoint(self) -> bool:
        return not self._five

    def open(self) -> None:
        self._five = []

    def process(self, row: Any, port: int) -> Any:
        self._five.append(row.n)
        if len(self._five) < 5:
            return None
        found, self._five = self._five, []
        return {"n": found[0], "total": sum(found)}


def test_threads_points_and_replayable_starts_on_spark(spark: Any, tmp_path: Path) -> None:
    topology = hf.Topology("threads")
    made = topology.operator(Count, [], schema="n long", name="count")
    kept = made.replayable(name="kept").consistent("r", period=0.3).filter("n >= 0", name="some")
    sums = kept.apply(Fives, "n long, total long", name="fives")
    sums.sink(hf.FileSink(str(tmp_path / "out"), "parquet"), name="out")
    arm("drain.all_acked=raise@1")
    try:
        status = topology.run(spark=spark, store=f"file:{tmp_path}/store", until="available")
    finally:
        disarm()
    assert status["regions"]["r"]["resets"] == 1
    assert status["lost_rows"]["out"] == 0
    rows = [
        row for path in (tmp_path / "out").glob("part-*.parquet") for row in pq.read_table(path).to_pylist()
    ]
    assert sorted((row["n"], row["total"]) for row in rows) == [
        (n, sum(range(n, n + 5))) for n in range(0, ROWS, 5)
    ]
