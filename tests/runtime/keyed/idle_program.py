"""Child of test_operators_survive_kills: two sources, one of which soon falls silent, to the end of the other."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = "at timestamp, k string, n long"


class Slow(hf.Rows):
    """Takes its time, so that the other source can be silent for long enough."""

    def read_arrow(self, piece: Any, stamp: Any) -> Any:
        time.sleep(0.008)
        return super().read_arrow(piece, stamp)


def rows(count: int) -> list[tuple[datetime.datetime, str, int]]:
    return [(BEGIN + datetime.timedelta(seconds=n / 10), "abc"[n % 3], n) for n in range(count)]


def main(here: str) -> None:
    topology = hf.Topology("idle")
    steady = topology.source(Slow(rows(400), SCHEMA, rows_per_step=5), name="steady")
    rare = topology.source(hf.Rows(rows(10), SCHEMA, rows_per_step=10), name="rare")
    steady, rare = (stream.consistent(period=0.02) for stream in (steady, rare))
    both = steady.union(rare)
    window = hf.tumbling(2, on="at", delay=1, idle=0.1)
    outputs = {
        "windows": both.aggregate("k", window=window, c=hf.count(), total=hf.sum("n"), name="windows"),
        "sorted": both.sort("at", delay=1, idle=0.1, name="sort"),
        "asof": steady.asof_join(rare, by="k", on="at", idle=0.1, name="asof", delay=0),
    }
    for name, out in outputs.items():
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
