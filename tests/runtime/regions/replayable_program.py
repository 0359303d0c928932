"""Child of test_replayable_survives_kills: rows of a part outside of regions enter one by `.replayable()`, to the end.

replayable_program.py MODE DIRECTORY
"""

from __future__ import annotations

import sys
import time
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS = 600


class Plus(hf.Operator):
    """Outside of regions."""

    def process(self, row: Any, port: int) -> Any:
        time.sleep(0.0005)  # so that rows enter little by little
        return {"n": row.n, "text": "x" * (row.n % 7)}


class Count(hf.Operator):
    """In the region: numbers what it sees."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return {"n": row.n, "seen": self.seen}


def build(mode: Any, here: str) -> hf.Topology:
    topology = hf.Topology("entered")
    rows = topology.source(hf.Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=4), name="rows")
    plus = rows.apply(Plus, "n long, text string", name="plus")
    kept = plus.replayable(name="kept").consistent("r", period=0.03, mode=mode)
    kept.apply(Count, "n long, seen long", name="count").sink(
        hf.FileSink(f"{here}/rows", "parquet"), name="out"
    )
    return topology


def main(mode: str, here: str) -> None:
    run_local(build(mode, here), store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
