"""Child of test_first_day_survives_kills: a log that grows from life to life, with lines that are none, through operators with
named outputs, errors, a table and a service beside the stream. argv: "grow" or "end", directory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.testing import run_local

LINES, PER_LIFE = 270, 60
NAMES = pa.table({"k": ["k0", "k1"], "name": ["zero", "one"]})


def line(n: int) -> str:
    return f"no json {n}" if n % 9 == 5 else json.dumps({"n": n, "k": f"k{n % 3}"})


class Parts(hf.Operator):
    """Leaves by two outputs, and fails behind a change of its state and a row that it has given."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Iterator[dict[str, Any]]:
        self.seen += 1
        if row.n % 4 == 1:
            self.submit({"n": row.n, "seen": self.seen}, port="odd")
        else:
            yield {"n": row.n, "k": row.k, "seen": self.seen}
        if row.n % 10 == 3:
            raise ValueError(f"{row.n} is bad")


class Totals(hf.KeyedOperator):
    total = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.total += row.n
        if row.n % 10 == 7:
            raise ValueError(f"{row.n} is bad")
        return key, row.n, self.total


def ask(row: Any) -> dict[str, Any]:
    time.sleep(0.001 * (row.n % 3))
    return {"n": row.n, "answer": row.n * row.n}


def build(here: Path) -> hf.Topology:
    topology = hf.Topology("first_day")
    log = hf.Files(
        str(here / "logs"), "json", "n long, k string",
        changed="append", malformed="stream", max_rows_per_step=11,
    )  # fmt: skip
    rows = topology.source(log, name="log").consistent("r", period=0.02)
    schemas = {"main": "n long, k string, seen long", "odd": "n long, seen long"}
    parts = rows.apply(Parts, schemas=schemas, name="parts", on_error="stream")
    totals = rows.keyed("k", Totals, "k string, n long, total long", name="totals", on_error="stream")
    streams = {
        "malformed": rows.malformed,
        "main": parts["main"],
        "odd": parts["odd"],
        "failed": parts.errors,
        "totals": totals,
        "totals_failed": totals.errors,
        "looked_up": rows.lookup(NAMES, "k", name="names"),
        "answers": rows.async_map(ask, "n long, answer long", concurrency=4, name="answers"),
        "some": rows.async_map(ask, "n long, answer long", concurrency=4, ordered=False, name="some"),
    }
    for name, stream in streams.items():
        stream.sink(hf.FileSink(str(here / name), "parquet"), name=f"{name}_out")
    return topology


def grow(log: Path, to_its_end: bool) -> None:
    """More lines at the end of the file, the last one whole."""
    log.parent.mkdir(parents=True, exist_ok=True)
    there = len(log.read_text().splitlines()) if log.exists() else 0
    with open(log, "a") as file:
        file.writelines(f"{line(n)}\n" for n in range(there, LINES if to_its_end else there + PER_LIFE))


if __name__ == "__main__":
    here = Path(sys.argv[2])
    grow(here / "logs" / "app.json", sys.argv[1] == "end")
    run_local(build(here), f"file:{here}/store")
