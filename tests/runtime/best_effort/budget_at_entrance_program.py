"""Child of test_budget_at_entrance: rows of a part outside of regions that may lose some of them enter a region.

budget_at_entrance_program.py DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import holdfast as hf
from holdfast.testing import MemorySink, submit_local

ROWS = 40


class Merge(hf.Operator):
    bad: ClassVar[set[int]] = set()

    def process(self, row: Any, port: int) -> Any:
        if port == 1 and row.id in self.bad:
            self.bad.discard(row.id)
            raise ValueError("not this row, the first time")
        return {"id": row.id, "port": port}


def build(sink: Any, bad: int | None = None, at: str = "ids", many: int = ROWS, **budget: Any) -> hf.Topology:
    """Epochs come at the end only."""
    Merge.bad = set() if bad is None else {bad}
    made = hf.Topology("entrance")
    rows = [(n,) for n in range(ROWS)]
    exact = made.source(hf.Rows(rows, "id long"), name="exact").consistent("r", trigger="manual")
    loose = made.source(hf.Rows([(n,) for n in range(many)], "id long", rows_per_step=10), name="loose")
    if at == "loose":
        loose = loose.may_lose(**budget)
    ids = loose.apply(Pass, "id long", name="ids")
    if at == "ids":
        ids = ids.may_lose(**budget)
    merged = made.operator(Merge, [exact, ids.autonomous()], schema="id long, port long", name="merge")
    merged.sink(sink, name="out")
    return made


class Pass(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return {"id": row.id}


def main(here: str) -> None:
    job = submit_local(build(MemorySink("killed"), rows=3), store=f"file:{here}/store")
    while job.status()["elements"]["merge"]["rows"] < 2 * ROWS:
        time.sleep(0.005)
    time.sleep(0.2)
    Path(here, "entered").touch()
    time.sleep(1000)  # until it is killed


if __name__ == "__main__":
    main(*sys.argv[1:])
