"""Child of test_sorted_by_key_survives_kills: rows out of order, brought into order for each key and numbered. argv: directory."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = [(n, f"k{n * 7 % 5}", BEGIN + dt.timedelta(seconds=n + n * 37 % 11)) for n in range(300)]
"""At most ten seconds out of order."""


class Numbered(hf.KeyedOperator):
    nth = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.nth += 1
        return {"k": key, "nth": self.nth, "n": row.n, "at": row.at}


def build(here: Path) -> hf.Topology:
    topology = hf.Topology("by_key")
    source = topology.source(hf.Rows(ROWS, "n long, k string, at timestamp", rows_per_step=9), name="rows")
    rows = source.event_time("at", delay="10 seconds").consistent("r", period=0.02)
    rows.sort(by="k", name="in_order").keyed(
        "k", Numbered, "k string, nth long, n long, at timestamp", name="numbered"
    ).sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
    return topology


if __name__ == "__main__":
    run_local(build(Path(sys.argv[1])), f"file:{sys.argv[1]}/store", close=True)
