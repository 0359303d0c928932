"""Child of test_loss_budgets: one life of a graph that may lose some rows. argv: what follows, rows that may be lost, directory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa

import holdfast as hf
from holdfast.errors import BudgetExceededError
from holdfast.sources import Beacon
from holdfast.testing import run_local

ROWS, STEP = 200, 5


def ids(table: pa.Table) -> pa.Table:
    return table.select(["id"])


def of_one_key(table: pa.Table) -> pa.Table:
    return pa.table({"id": table.column("id"), "k": pa.array([0] * table.num_rows, pa.int64())})


def build(then: str, rows: int, here: Path) -> hf.Topology:
    topology = hf.Topology("loose")
    numbers = topology.source(Beacon(rows=ROWS, rows_per_step=STEP), name="numbers")
    passing = numbers.map_arrow(ids, "id long", name="ids").may_lose(rows=rows, then=then)  # type: ignore[arg-type]
    passing.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    together = numbers.map_arrow(of_one_key, "id long, k long", name="together")
    counts = together.aggregate("k", rows=hf.count(), name="counts").checkpoint(every=3600)
    counts.sink(hf.FileSink(str(here / "counts"), "parquet"), name="counts_out")
    return topology


if __name__ == "__main__":
    then, rows, here = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    try:
        status = run_local(build(then, rows, here), f"file:{here}/store").as_dict()
    except BudgetExceededError as error:
        status = {"parked": str(error)}
    (here / "status.json").write_text(json.dumps(status))
    os._exit(0)
