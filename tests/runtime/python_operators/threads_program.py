"""Child of test_threads_survive_kills: rows made by threads, and an operator in the middle with a thread, to the end.

threads_program.py MODE DIRECTORY
"""

from __future__ import annotations

import sys
import time
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS = 1200
SHARE = 7
"""Rows that the operator in the middle sums up before its thread lets them go."""


class Count(hf.Operator):
    """Three threads number rows together: figure 6 of the document, several submissions per permit."""

    threads = 3
    replayable = True

    def __init__(self) -> None:
        self.n = 0

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                for _ in range(min(3, ROWS - self.n)):
                    context.submit({"n": self.n})
                    self.n += 1
                if self.n == ROWS:
                    return
            time.sleep(0.002)


class Later(hf.Operator):
    """Keeps what comes; its thread lets it go, a few rows at a time. What is left goes in `drain`."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.gone = 0

    def process(self, row: Any, port: int) -> None:
        self.waiting.append(row.n)

    def run(self, context: Any) -> None:
        while not context.wait(0.002):
            with context.permit():
                self._let_go()

    def _let_go(self) -> None:
        while len(self.waiting) >= SHARE:
            share, self.waiting = self.waiting[:SHARE], self.waiting[SHARE:]
            self.gone += len(share)
            self.submit([{"n": n} for n in share])

    def drain(self) -> Any:
        self._let_go()
        if self.gone + len(self.waiting) == ROWS:
            left, self.waiting = self.waiting, []
            return [{"n": n} for n in left]
        return None


def main(mode: Any, here: str) -> None:
    topology = hf.Topology("threads")
    made = topology.operator(Count, [], schema="n long", name="count")
    made = made.consistent(name="threads", period=0.02, mode=mode)
    made.apply(Later, "n long", name="later").sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
