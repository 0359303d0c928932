"""A topology whose Python operator changes large declared variables a little at every row, and shows all of them.

Also a program: `variables_program.py MODE DIRECTORY` runs it to the end in a directory, killed by HOLDFAST_FP.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.language.connectors import Slice
from holdfast.state.values import codec
from holdfast.state.variables.instance_state import take_state
from holdfast.testing import run_local

ROWS = [((n * 7919) % 101, n) for n in range(240)]
ROWS_PER_STEP = 8
SCHEMA = "n long, shown long"


class Steps(hf.Rows):
    """Every step is an epoch."""

    def next_slice(self) -> Slice | None:
        piece = super().next_slice()
        return None if piece is None else replace(piece, boundary=True)


class Many(hf.Operator):
    """All kinds of variables. What leaves depends on every one of them, and on their order."""

    counts = hf.Map(str, int)
    nested = hf.Map(int, list)
    line = hf.List(int)
    recent = hf.Window(int, rows=150)
    title = hf.Value(str, default="")
    boxes = hf.Value(list)
    seen = hf.Value(int, default=0)

    def __init__(self) -> None:
        self.plain: dict[str, int] = {}

    def fill(self) -> None:
        self.counts.update({f"key {n}": n for n in range(150)})
        self.nested.update({n: [n] for n in range(50)})
        self.line.extend(range(150))
        self.recent.set(range(150))
        self.boxes = list(range(50))

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int]]:
        if not self.seen:
            self.fill()
        self.seen += 1
        self.counts[f"key {row.k}"] = row.n
        self.counts.pop(f"key {row.k + 100}", None)
        if row.n % 3:
            self.counts[f"new {row.n % 40}"] = row.k
        self.nested[row.k % 50].append(row.n)
        self.line.insert(row.k, row.n)
        del self.line[row.n % 50 : row.n % 50 + 2]
        self.recent.append(row.n)
        if row.n % 50 == 0:
            self.title = f"at {row.n}"
            self.boxes[row.n % 7] += 1
        if row.n == 150:
            self.line.clear()
        self.plain[f"p{row.k % 5}"] = row.n
        yield row.n, self.shown()

    def shown(self) -> int:
        whole = [dict(self.counts), dict(self.nested), list(self.line), list(self.recent)]
        return zlib.crc32(codec.encode([*whole, self.title, self.boxes, self.seen, self.plain]))


def topology(
    sink: Any,
    *,
    rows: int = len(ROWS),
    mode: str = "drain",
    checkpoint: Any = None,
    operator: Any = Many,
    keep: int = 3,
) -> hf.Topology:
    made = hf.Topology("variables")
    source = made.source(Steps(ROWS[:rows], "k long, n long", rows_per_step=ROWS_PER_STEP), name="rows")
    region = source.consistent("r", mode=mode, trigger="operator", keep=keep)  # type: ignore[arg-type]
    region.apply(operator, SCHEMA, name="many", checkpoint=checkpoint).sink(sink, name="out")
    return made


class Row:
    """As the runtime gives it to `process`."""

    def __init__(self, k: int, n: int) -> None:
        self.k, self.n = k, n


def expected(rows: int = len(ROWS)) -> list[dict[str, int]]:
    """The same by the class alone."""
    alone = Many()
    return [{"n": n, "shown": shown} for k, n in ROWS[:rows] for n, shown in alone.process(Row(k, n), 0)]


def states() -> Iterator[bytes]:
    """The whole state before the first row and after each."""
    alone = Many()
    yield take_state(alone)
    for k, n in ROWS:
        list(alone.process(Row(k, n), 0))
        yield take_state(alone)


if __name__ == "__main__":
    mode, here = sys.argv[1], Path(sys.argv[2])
    run_local(topology(hf.FileSink(str(here / "out"), format="parquet"), mode=mode), f"file:{here / 'store'}")
