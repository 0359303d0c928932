"""Child of test_aware_trigger: pools that are thrown away when they are full, in a region timed by its state, to the end.

aware_program.py MODE DIRECTORY
"""

from __future__ import annotations

import sys
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS, FULL, STEP = 12_000, 400, 20


class Pool(hf.Operator):
    """Keeps rows until there are enough of them; then tells their sum and forgets them."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.number = 0

    def process(self, row: Any, port: int) -> dict[str, int] | None:
        self.rows.append(row.v)
        if len(self.rows) < FULL:
            return None
        self.number, total, self.rows = self.number + 1, sum(self.rows), []
        return {"number": self.number, "total": total}


def wanted() -> list[tuple[int, int]]:
    """By a plain loop."""
    return [(n + 1, sum(range(n * FULL, (n + 1) * FULL))) for n in range(ROWS // FULL)]


def build(source: Any, sink: Any, **settings: Any) -> hf.Topology:
    topology = hf.Topology("pools")
    rows = topology.source(source, name="rows").consistent("pools", trigger="aware", **settings)
    rows.apply(Pool, "number long, total long", name="pool").sink(sink, name="out")
    return topology


def main(mode: str, here: str) -> None:
    source = hf.Rows([(n,) for n in range(ROWS)], "v long", rows_per_step=STEP)
    made = build(source, hf.FileSink(f"{here}/out", "parquet"), period=0.03, mode=mode)
    run_local(made, store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
