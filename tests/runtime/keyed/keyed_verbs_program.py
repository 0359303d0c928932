"""Child of test_operators_survive_kills: keyed operators of all kinds over one input, to its end."""

from __future__ import annotations

import datetime
import random
import sys

import holdfast as hf
from holdfast.testing import run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def rows() -> list[tuple[datetime.datetime, str, int]]:
    chance = random.Random(7)
    lags = [chance.choice([0, 0, 0, 1, 3, 9]) for _ in range(200)]
    return [
        (
            BEGIN + datetime.timedelta(seconds=n / 4 - lags[n]),
            chance.choice("abcd"),
            chance.randrange(99),
        )
        for n in range(200)
    ]


def main(here: str) -> None:
    topology = hf.Topology("keyed")
    schema = "at timestamp, k string, n long"
    stream = topology.source(hf.Rows(rows(), schema, rows_per_step=5), name="rows").consistent(period=0.02)
    other = topology.source(hf.Rows(rows()[::-1], schema, rows_per_step=8), name="other").consistent(
        period=0.02
    )
    in_order = stream.sort("at", delay=3, name="sorted")
    minutes = hf.tumbling(6, on="at", delay=2)
    outputs = {
        "once": stream.dedup(["k", "n"], name="once"),
        "again": stream.dedup("k", ttl=hf.ttl(2, on="at", delay=1), name="again"),
        "lives": stream.aggregate(
            "k", "each", ttl=hf.ttl(1, on="at", delay=0), c=hf.count(), newest=hf.last("n"), name="lives"
        ),
        "best": stream.top_n(2, by="k", order=["-n", "at"], window=minutes, name="best"),
        "sixes": in_order.aggregate("k", window=hf.tumbling(rows=6), all=hf.collect("n"), name="sixes"),
        "both": stream.zip(other, by="k", name="both"),
        "paired": stream.zip(other, name="paired"),
        "clocked": stream.dedup(["k", "n"], ttl=hf.ttl(3600), name="clocked"),
        "running": stream.top_n(3, by="k", order="-n", name="running"),
    }
    for name, out in outputs.items():
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
