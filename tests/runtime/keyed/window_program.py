"""Child of test_operators_survive_kills: windows over time and over rows, with late rows, to the end of its input."""

from __future__ import annotations

import datetime
import random
import sys

import holdfast as hf
from holdfast.testing import run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def rows() -> list[tuple[datetime.datetime, str, int]]:
    chance = random.Random(5)
    lags = [chance.choice([0, 0, 0, 1, 3, 9]) for _ in range(600)]
    return [
        (BEGIN + datetime.timedelta(seconds=n / 10 - lags[n]), chance.choice("abcd"), n) for n in range(600)
    ]


def main(here: str) -> None:
    topology = hf.Topology("windows")
    source = hf.Rows(rows(), "at timestamp, k string, n long", rows_per_step=10)
    stream = topology.source(source, name="rows").consistent(period=0.02)
    window = hf.sliding(6, 2, on="at", delay=2)
    timed = stream.aggregate(
        "k", window=window, late=True, c=hf.count(), total=hf.sum("n"), newest=hf.last("n"), name="timed"
    )
    counted = stream.aggregate("k", window=hf.sliding(rows=20, every=5), total=hf.sum("n"), name="counted")
    for name, out in (("timed", timed), ("late", timed.late), ("counted", counted)):
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
