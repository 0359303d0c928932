"""Child of test_prepared_checkpoints: blocking and non-blocking operators in one region, to the end of its input.

prepare_program.py MODE DIRECTORY
"""

from __future__ import annotations

import sys
import time
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS, KEYS = 1500, 40


class Blocking:
    """Its state is encoded between two steps."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process(self, row: Any, port: int) -> Any:
        self.counts[row.n % KEYS] = self.counts.get(row.n % KEYS, 0) + 1
        return {"n": row.n, "a": self.counts[row.n % KEYS], "b": 0, "c": 0}


class Copies:
    """Copies its state itself; what becomes of the copy happens in the background."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process(self, row: Any, port: int) -> Any:
        self.counts[row.n % KEYS] = self.counts.get(row.n % KEYS, 0) + 1
        return {**row.asDict(), "b": self.counts[row.n % KEYS]}

    def prepare_to_checkpoint(self) -> dict[int, int]:
        return dict(self.counts)

    def checkpoint(self, copy: dict[int, int]) -> list[list[int]]:
        time.sleep(0.01)  # the operator goes on meanwhile
        return sorted([key, count] for key, count in copy.items())

    def reset(self, state: list[list[int]]) -> None:
        self.counts = dict(state)

    def reset_to_initial_state(self) -> None:
        self.counts = {}


class Declared(hf.Operator):
    """Its state is copied by holdfast."""

    counts = hf.Map(int, int)

    def process(self, row: Any, port: int) -> Any:
        self.counts[row.n % KEYS] = self.counts.get(row.n % KEYS, 0) + 1
        return {**row.asDict(), "c": self.counts[row.n % KEYS]}


def main(mode: Any, here: str) -> None:
    topology = hf.Topology("prepared")
    source = hf.Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=10)
    rows = topology.source(source, name="rows").consistent("r", period=0.02, mode=mode)
    columns = "n long, a long, b long, c long"
    made = rows.apply(Blocking, columns, name="blocking").apply(Copies, columns, name="copies")
    made = made.apply(Declared, columns, name="declared")
    made.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
