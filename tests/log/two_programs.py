"""Two topologies joined by a log: `python two_programs.py first|second DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local


class Plus:
    def process(self, row: Any, port: int) -> Any:
        return {"n": row.n, "square": row.square + 1}


def first(here: Path) -> hf.Topology:
    made = hf.Topology("first")
    rows = hf.Rows([(n, n * n) for n in range(400)], "n long, square long", rows_per_step=10)
    made.source(rows, name="numbers").consistent("r", period=0.02).sink(hf.LogSink(here / "log"), name="log")
    return made


def second(here: Path) -> hf.Topology:
    made = hf.Topology("second")
    rows = made.source(hf.LogSource(here / "log", rows_per_step=10), name="log").consistent("r", period=0.02)
    rows.apply(Plus, "n long, square long", name="plus").sink(hf.LogSink(here / "again"), name="again")
    return made


if __name__ == "__main__":
    which, directory = sys.argv[1], Path(sys.argv[2])
    made = {"first": first, "second": second}[which](directory)
    run_local(made, store=f"file:{directory}/{which}")
