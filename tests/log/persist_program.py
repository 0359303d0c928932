"""A stream that goes through a log, in one program: `python persist_program.py SHAPE DIRECTORY`.

SHAPE says what is before the log and behind it: r a region, s an element without state outside of regions, c a chain of three, each with a log, b
one that is best effort, o one whose stream is persisted for outages only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf
from holdfast.language.run import RunStatus
from holdfast.runtime.persisted.outage import shared
from holdfast.testing import run_local

ROWS = 300
HELD_BYTES = 300
"""In the shapes with o: a few steps."""


class Numbered:
    """Tells how many rows came before, and what they add up to: sees every row that is missing, doubled or at another place."""

    def __init__(self) -> None:
        self.count = self.total = 0

    def process(self, row: Any, port: int) -> Any:
        self.count += 1
        self.total = (self.total * 31 + row.n) % 1_000_003
        return {"n": row.n, "count": self.count, "total": self.total}


class Broken:
    """Fails while a file is there."""

    def __init__(self, flag: str) -> None:
        self._flag = flag
        self.count = 0

    def process(self, row: Any, port: int) -> Any:
        if Path(self._flag).exists():
            raise ValueError("down")
        self.count += 1
        return {"n": row.n, "count": self.count}


class Passed:
    def process(self, row: Any, port: int) -> Any:
        return {"n": row.n}


def some(table: pa.Table) -> pa.Table:
    return table.filter(pc.not_equal(pc.bit_wise_and(table.column("n"), pa.scalar(3)), 1))


def same(table: pa.Table) -> pa.Table:
    return table


def kept() -> list[int]:
    return [n for n in range(ROWS) if n & 3 != 1]


def expected() -> list[dict[str, int]]:
    numbered = Numbered()
    return [numbered.process(type("Row", (), {"n": n}), 0) for n in kept()]


def made(shape: str, here: Path, rows: int = ROWS) -> hf.Topology:
    topology = hf.Topology("persisting")
    data = hf.Rows([(n,) for n in range(rows)], "n long", rows_per_step=10)
    stream = topology.source(data, name="numbers")
    if shape[0] == "r":
        stream = stream.consistent("first", period=0.005)
    stream = stream.map_arrow(some, "n long", name="some")
    if shape[0] == "c":
        stream = stream.persist("one").map_arrow(same, "n long", name="same").persist("two")
        stream = stream.map_arrow(same, "n long", name="again")
    if shape[0] == "b":
        stream = stream.apply(Passed, "n long", name="passed")
    if shape[0] == "o":
        shared.HELD_BYTES = HELD_BYTES
        behind = stream.persist("middle", when="outage")
    else:
        behind = stream.persist("middle")
    if shape[1] == "r":
        behind = behind.consistent("second", period=0.005)
        behind = behind.apply(Numbered, "n long, count long, total long", name="numbered")
    else:
        behind = behind.autonomous().isolate()
    behind.sink(hf.LogSink(here / "out"), name="out")
    return topology


def run(shape: str, here: Path, **options: Any) -> RunStatus:
    return run_local(made(shape, here), store=f"file:{here}/store", **options)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
