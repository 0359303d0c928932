"""Child of test_asof_golden: trades with the latest quotes of their tickers, four ways. A quote of a far day closes the
quotes, so that no trade waits for one."""

from __future__ import annotations

import csv
import datetime
import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

WAYS: dict[str, dict[str, Any]] = {
    "asof": {},
    "tolerance": {"tolerance": datetime.timedelta(days=1)},
    "allow_exact_matches": {"exact": False},
    "allow_exact_matches_and_tolerance": {"exact": False, "tolerance": 0.1},
}


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y%m%d %H:%M:%S.%f").replace(tzinfo=datetime.UTC)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main(data: str, here: str) -> None:
    trades = [
        (moment(r["time"]), r["ticker"], float(r["price"]), int(r["quantity"]), r["marketCenter"])
        for r in rows(Path(data) / "trades.csv")
    ]
    quotes = [
        (moment(r["time"]), r["ticker"], float(r["bid"]), float(r["ask"]))
        for r in rows(Path(data) / "quotes.csv")
    ]
    quotes.append((datetime.datetime(2038, 1, 1, tzinfo=datetime.UTC), "END", 0.0, 0.0))
    topology = hf.Topology("asof")
    left = topology.source(
        hf.Rows(
            trades,
            "time timestamp, ticker string, price double, quantity long, marketCenter string",
            rows_per_step=2,
        ),
        name="trades",
    ).consistent(name="region", period=0.01)
    right = topology.source(
        hf.Rows(quotes, "time timestamp, ticker string, bid double, ask double", rows_per_step=1),
        name="quotes",
    ).consistent(name="region", period=0.01)
    for name, options in WAYS.items():
        joined = left.asof_join(right, "ticker", on="time", name=name, **{"delay": 0, **options})
        joined.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
