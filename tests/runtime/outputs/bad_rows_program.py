"""Child of test_bad_rows_of_sinks: file sinks and functions that cannot write some rows. argv: directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.testing import run_local

ROWS = [(n, f"k{n % 3}" if n % 7 else "", float("nan") if n % 11 == 5 else n / 2) for n in range(200)]
SCHEMA = "n long, k string, x double"


def odd(table: pa.Table) -> list[str | None]:
    """The check of a sink."""
    return ["odd" if n % 2 else None for n in table.column("n").to_pylist()]


class Lines(hf.Sink):
    """A sink of one's own: a line per row. It shows rows at once; what it refuses is told with the epoch all the same."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, context: hf.SinkContext) -> None:
        self._context = context

    def write_arrow(self, table: pa.Table, step: hf.StepId) -> int | None:
        with open(self._path, "a") as file:
            for row in table.to_pylist():
                try:
                    file.write(json.dumps(row, allow_nan=False) + "\n")
                except ValueError as error:
                    self._context.refuse(row, error)
        return None

    def write_spark(self, frame: Any, step: hf.StepId) -> int | None:
        return self.write_arrow(frame.toArrow(), step)


def build(here: Path) -> hf.Topology:
    topology = hf.Topology("bad_rows")
    rows = topology.source(hf.Rows(ROWS, SCHEMA, rows_per_step=7), name="rows").consistent("r", period=0.02)
    files = rows.sink(
        hf.FileSink(str(here / "files"), "json", partition_by="k"), name="files", on_error="stream"
    )
    called: list[Any] = []
    each = hf.ForeachBatch(lambda table, _: called.append(table), "epoch", staging=str(here / "s"), check=odd)
    function = rows.sink(each, name="function", on_error="stream")
    lines = rows.sink(Lines(here / "lines"), name="lines", on_error="stream")
    for sink in (files, function, lines):
        sink.errors.sink(hf.FileSink(str(here / f"{sink.name}_bad"), "parquet"), name=f"{sink.name}_bad")
    return topology


if __name__ == "__main__":
    run_local(build(Path(sys.argv[1])), f"file:{sys.argv[1]}/store")
