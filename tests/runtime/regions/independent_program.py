"""Child of test_independent: a region whose elements fail alone. Each of its sinks shows the numbers of the rows it got."""

from __future__ import annotations

import sys
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS = 600


class Numbered(hf.Operator):
    """Counts, and holds a row back until the next one or a drain."""

    seen = hf.Value(int, default=0)
    held = hf.List(int)

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        out = [{"id": n} for n in self.held]
        self.held.clear()
        self.held.append(row.id)
        return out

    def drain(self) -> Any:
        out = [{"id": n} for n in self.held]
        self.held.clear()
        return out


def build(here: str, mode: Any = "independent", rows_per_step: int = 7, count: int = ROWS) -> hf.Topology:
    topology = hf.Topology("alone")
    rows = [(n, n % 5) for n in range(count)]
    source = topology.source(hf.Rows(rows, "id long, k long", rows_per_step=rows_per_step), name="numbers")
    start = source.consistent("r", period=0.03, mode=mode, max_consecutive_resets=50)
    totals = start.isolate().aggregate("k", n=hf.count(), newest=hf.max("id"), emit="each", name="totals")
    totals.isolate().sink(hf.FileSink(f"{here}/totals", "parquet"), name="totals_out")
    numbered = start.apply(Numbered, "id long", name="numbered")
    numbered.isolate().sink(hf.FileSink(f"{here}/numbered", "parquet"), name="numbered_out")
    return topology


def main(here: str) -> None:
    run_local(build(here), store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
