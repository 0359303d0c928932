"""Rows that the driver reads for its own operators, exactly once: `python near_program.py DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf


class Numbered(hf.Operator):
    """Every row with its number, and the sum so far."""

    def __init__(self) -> None:
        self.rows = self.total = 0

    def process_batch(self, table: pa.Table, port: int) -> list[dict[str, Any]]:
        told = []
        for v in table["v"].to_pylist():
            self.rows, self.total = self.rows + 1, self.total + v
            told.append({"n": self.rows, "v": v, "total": self.total})
        return told


if __name__ == "__main__":
    here = Path(sys.argv[1])
    topology = hf.Topology("near")
    source = hf.Files(str(here / "in"), "parquet", "v long, t string", max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(period=0.1)
    numbered = rows.apply(Numbered(), "n long, v long, total long", name="numbered")
    numbered.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    topology.run(store=str(here / "store"), until="available")
