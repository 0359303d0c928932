"""Child of test_driver_poison: an operator in the driver that raises at one row and hangs at another.

driver_poison_program.py DIRECTORY
"""

from __future__ import annotations

import sys
import time
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS = 120
RAISES, HANGS = 31, 77


class Sums(hf.Operator):
    total = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> Any:
        self.total += row.n
        if row.n == RAISES:
            raise ValueError("never")
        if row.n == HANGS:
            time.sleep(1000)
        time.sleep(0.001)
        return {"n": row.n, "total": self.total}


def main(here: str) -> None:
    topology = hf.Topology("poison")
    rows = topology.source(hf.Rows([(n,) for n in range(ROWS)], "n long", rows_per_step=5), name="rows")
    rows = rows.consistent("r", period=0.02)
    poison = hf.Poison("quarantine", after=2, timeout=0.2)
    made = rows.apply(Sums, "n long, total long", name="sums", poison=poison)
    made.sink(hf.FileSink(f"{here}/out", "parquet"), name="out")
    made.errors.sink(hf.FileSink(f"{here}/bad", "parquet"), name="bad")
    run_local(topology, f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
