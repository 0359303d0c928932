"""Child of test_operators_survive_kills: every kind of join over two streams, to the end of its input."""

from __future__ import annotations

import datetime
import random
import sys

import holdfast as hf
from holdfast.testing import run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROWS = 260


def rows(seed: int) -> list[tuple[datetime.datetime | None, str, int]]:
    """Some without an event time."""
    chance = random.Random(seed)
    lags = [chance.choice([0, 0, 0, 1, 3, 9]) for _ in range(ROWS)]
    times = [BEGIN + datetime.timedelta(seconds=n / 10 - lag) for n, lag in enumerate(lags)]
    return [(None if n % 40 == 7 else at, chance.choice("abcd"), n) for n, at in enumerate(times)]


def main(here: str) -> None:
    topology = hf.Topology("joins")
    left = topology.source(hf.Rows(rows(1), "at timestamp, k string, v long", rows_per_step=10), name="left")
    right = topology.source(hf.Rows(rows(2), "at timestamp, k string, w long", rows_per_step=8), name="right")
    left, right = (stream.consistent(name="region", period=0.02) for stream in (left, right))
    timed = {"on": "at", "delay": 3}
    joined = {
        "interval": left.join(right, "k", within=(1, 2), how="left", name="interval", **timed),
        "asof": left.asof_join(right, "k", tolerance=5, name="asof", **timed),
        "ordered": left.join(
            right, "k", keep=hf.latest(rows=30), other_keep=hf.latest(2), name="ordered", **timed
        ),
        "arrival": left.join(right, "k", keep=hf.latest(rows=10, per_key=True), name="arrival"),
    }
    for name, stream in joined.items():
        stream.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
