"""Child of test_idle_survives_kills: rows come in bursts, and before each burst the region comes to rest.

rest_program.py MODE KILLED_AT_REST DIRECTORY

KILLED_AT_REST: the process kills itself when its region is at rest for so many times; 0: never.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import holdfast as hf
from holdfast.language.connectors import Slice
from holdfast.runtime.job import Job
from holdfast.testing import submit_local

BURST, BURSTS = 6, 5
ROWS = BURST * BURSTS


class Bursts(hf.Rows):
    """A burst comes when somebody lets it in."""

    def __init__(self) -> None:
        super().__init__([(n,) for n in range(ROWS)], "n long", rows_per_step=2)
        self.let_in = 0

    def awaits_more(self) -> bool:
        return self._next < ROWS

    def next_slice(self) -> Slice | None:
        is_between = self._next % BURST == 0 and self._next < ROWS
        if is_between and self.let_in != self._next + 1:
            return None
        return super().next_slice()

    def next_burst(self) -> None:
        self.let_in = self._next + 1

    @property
    def is_between(self) -> bool:
        return self._next % BURST == 0


class Count(hf.Operator):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return {"n": row.n, "seen": self.seen}


def build(source: hf.Source, mode: Any, here: str) -> hf.Topology:
    topology = hf.Topology("bursts")
    rows = topology.source(source, name="rows").consistent("r", period=0.03, mode=mode)
    counted = rows.isolate().apply(Count, "n long, seen long", name="count")
    counted.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    return topology


def is_at_rest(job: Job) -> bool:
    """An epoch was due, and none came, since nothing is new."""
    controllers = [region.controller for region in job.regions.values()]
    return all(each.is_idle and each._wishes._in_turn for each in controllers)


def main(mode: str, killed_at: int, here: str) -> None:
    source = Bursts()
    job = submit_local(build(source, mode, here), f"file:{here}/store", "available", rest_s=0.005)
    ended, rests = threading.Event(), 0

    def watch() -> None:
        nonlocal rests
        while not ended.is_set():
            if source.is_between and is_at_rest(job):
                rests += 1
                if rests == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                source.next_burst()
            time.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    job.await_termination()
    ended.set()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
