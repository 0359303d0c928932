"""Child of test_pairs_survive_kills: `python pairs_program.py KIND DIRECTORY`. HOLDFAST_FP says how it dies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

ROWS = 300


class Passed(hf.Operator):
    """Hands rows on, in an element of its own: there is a queue before it and one behind it."""

    def process(self, row: Any, port: int) -> tuple[int, str]:
        return row.id, row.k


def program(kind: str, here: Path) -> hf.Topology:
    made = hf.Topology("pairs")
    rows = [(n, "xyz"[n % 3]) for n in range(ROWS)]
    left = made.source(hf.Rows(rows, "id long, k string", rows_per_step=3), name="left")
    right = made.source(hf.Rows(rows, "other long, k string", rows_per_step=7), name="right")
    passed = left.apply(Passed(), "id long, k string", name="passed")
    pairs = passed.zip(right, by="k" if kind == "by key" else None, name="pairs")
    pairs.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    return made


if __name__ == "__main__":
    kind, here = sys.argv[1], Path(sys.argv[2])
    run_local(program(kind, here), f"file:{here / 'store'}")
