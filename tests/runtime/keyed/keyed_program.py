"""Child of test_operators_survive_kills: sessions with timers and lifetimes, in a class of __main__."""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections.abc import Iterator
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Sessions(hf.KeyedOperator):
    count = hf.Value(int, default=0)
    until = hf.Value(dt.datetime)
    pages = hf.Map(str, int, ttl=20)
    recent = hf.Window(int, rows=3)

    def process(self, row: Any, key: Any) -> None:
        if self.until is not None:
            self.clear_timer(self.until)
        self.count += 1
        self.pages[row.page] = self.pages.get(row.page, 0) + 1
        self.recent.append(row.n)
        self.until = row.at + dt.timedelta(seconds=4)
        self.set_timer(self.until)

    def on_timer(self, at: dt.datetime, key: Any) -> Iterator[dict[str, Any]]:
        yield {"user": key, "ended": at, "rows": self.count, "said": f"{self.pages} {self.recent}"}
        self.count = 0


def average(row: Any, state: Any) -> dict[str, Any]:
    state.total += row.n
    state.rows += 1
    return {"user": row.user, "n": row.n, "average": state.total / state.rows}


def rows() -> list[tuple[dt.datetime, str, str, int]]:
    chance = random.Random(7)
    lags = [chance.choice([0, 0, 0, 1, 3]) for _ in range(600)]
    return [
        (BEGIN + dt.timedelta(seconds=n / 5 - lags[n]), f"u{chance.randint(0, 30)}", chance.choice("xyz"), n)
        for n in range(600)
    ]


def main(here: str) -> None:
    topology = hf.Topology("keyed")
    source = hf.Rows(rows(), "at timestamp, user string, page string, n long", rows_per_step=10)
    stream = topology.source(source, name="rows").consistent(period=0.02)
    sessions = stream.keyed(
        "user", Sessions, "user string, ended timestamp, rows long, said string", name="sessions", on="at", delay=2
    )  # fmt: skip
    averages = stream.map_state(
        "user",
        average,
        "user string, n long, average double",
        {"total": hf.Value(int, default=0), "rows": hf.Value(int, default=0)},
        name="averages",
    )
    for name, out in (("sessions", sessions), ("averages", averages)):
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
