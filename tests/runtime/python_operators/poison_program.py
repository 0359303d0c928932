"""Child of test_poison_rows: rows that end the process which works at them. argv: directory."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS = [(n, f"k{n % 3}") for n in range(40)]
KILLS, EXITS = 17, 31


class Sums(hf.KeyedOperator):
    """A sum per key. It cannot stand some rows."""

    total = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        if row.n == KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if row.n == EXITS:
            os._exit(3)
        self.total += row.n
        return {"k": key, "n": row.n, "total": self.total}


def build(here: Path, rows: list[tuple[int, str]] = ROWS, poison: Any = "quarantine") -> hf.Topology:
    topology = hf.Topology("poison")
    source = topology.source(hf.Rows(rows, "n long, k string", rows_per_step=10), name="rows")
    sums = source.consistent("r", period=0.1).keyed(
        "k", Sums, "k string, n long, total long", name="sums", poison=poison
    )
    sums.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    sums.errors.sink(hf.FileSink(str(here / "bad"), "parquet"), name="bad")
    return topology


if __name__ == "__main__":
    place = Path(sys.argv[1])
    run_local(build(place), f"file:{place}/store")
    os._exit(0)
