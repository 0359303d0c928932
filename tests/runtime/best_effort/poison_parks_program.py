"""Child of test_poison_parks: an element outside of regions that is parked at a row as long as a file is there.

poison_parks_program.py DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import submit_local

ROWS, STEP = 200, 10


class Odd(hf.Operator):
    def __init__(self, broken: str) -> None:
        self.broken = broken

    def process(self, row: Any, port: int) -> Any:
        if row.n == 73 and Path(self.broken).exists():
            raise ValueError("not this one")
        return {"n": row.n}


def build(here: str) -> hf.Topology:
    topology = hf.Topology("poison")
    rows = topology.source(hf.Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=STEP), name="rows")
    odd = rows.apply(lambda: Odd(f"{here}/broken"), "n long", name="odd", poison="park")
    odd.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    other = topology.source(hf.Rows([(n,) for n in range(ROWS)], "n long"), name="other")
    other.sink(hf.FileSink(f"{here}/others", "parquet"), name="others")
    return topology


def main(here: str) -> None:
    job = submit_local(build(here), store=f"file:{here}/store")
    while job.status()["state"] != "parked":
        time.sleep(0.005)
    Path(here, "parked").touch()
    time.sleep(1000)  # until it is killed


if __name__ == "__main__":
    main(*sys.argv[1:])
