"""Child of test_parked_input: rows enter a region by `.replayable()` that is parked as long as a file is there.

parked_input_program.py DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import submit_local

ROWS = 300


class Plus(hf.Operator):
    """Outside of regions."""

    def process(self, row: Any, port: int) -> Any:
        time.sleep(0.0005)  # so that rows enter little by little
        return {"n": row.n, "text": "x" * (row.n % 7)}


class Count(hf.Operator):
    """In the region: numbers what it sees, up to row 40 while the file is there."""

    def __init__(self, broken: str) -> None:
        self.broken = broken
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        if row.n >= 40 and Path(self.broken).exists():
            raise ValueError("not while this is broken")
        self.seen += 1
        return {"n": row.n, "seen": self.seen}


def build(here: str, keep: int = 1 << 30, count: int = ROWS) -> hf.Topology:
    topology = hf.Topology("parked")
    rows = topology.source(hf.Rows([(n,) for n in range(count)], "n long", rows_per_step=4), name="rows")
    plus = rows.apply(Plus, "n long, text string", name="plus")
    kept = plus.replayable(keep=keep, name="kept").consistent("r", period=0.03)
    counted = kept.apply(lambda: Count(f"{here}/broken"), "n long, seen long", name="count")
    counted.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    return topology


def main(here: str) -> None:
    job = submit_local(build(here), store=f"file:{here}/store")
    while job.status()["regions"]["r"]["phase"] != "parked":
        time.sleep(0.005)
    Path(here, "parked").touch()
    time.sleep(1000)  # until it is killed


if __name__ == "__main__":
    main(*sys.argv[1:])
