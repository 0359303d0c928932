"""Child of test_own_checkpoints_in_background: `python own_checkpoints_program.py DIRECTORY`. HOLDFAST_FP says how it dies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local


class Counted(hf.Operator):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> tuple[int, int]:
        self.seen += 1
        return row.id, self.seen


def program(here: Path) -> hf.Topology:
    made = hf.Topology("background")
    rows = made.source(hf.Rows([(n,) for n in range(400)], "id long", rows_per_step=4), name="rows")
    counted = rows.apply(Counted(), "id long, seen long", name="counted").checkpoint(every=0.01)
    counted.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    return made


if __name__ == "__main__":
    here = Path(sys.argv[1])
    status = run_local(program(here), f"file:{here / 'store'}")
    (here / "lost").write_text(str(status.lost_rows["out"]))
