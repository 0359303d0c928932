"""Child of test_event_time: event time declared once, behind which rows are dropped, counted in windows of windows, sorted,
and kept by key; over connections too. The input comes to its end, and so does time."""

from __future__ import annotations

import datetime as dt
import random
import sys
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = "id long, k long, at timestamp"
DELAY = 10
GAP = 9


def rows(count: int = 300) -> list[tuple[int, int, dt.datetime]]:
    """Out of order, a few by more than the delay."""
    chance = random.Random(7)
    shift = [chance.choice([0, 3, 6, 9, 9, 25]) for _ in range(count)]
    return [(n, n % 7, BEGIN + dt.timedelta(seconds=n - shift[n])) for n in range(count)]


class Quiet(hf.KeyedOperator):
    """Tells when a key had no row for some time. Its timers set no others: at the end there are none left."""

    seen = hf.Value(int, default=0)
    until = hf.Value(dt.datetime)

    def process(self, row: Any, key: Any) -> None:
        if self.until:
            self.clear_timer(self.until)
        self.seen += 1
        self.until = row.at + dt.timedelta(seconds=12)
        self.set_timer(self.until)

    def on_timer(self, at: Any, key: Any) -> Any:
        yield {"k": key, "seen": self.seen, "at": at}


class Ordered(hf.KeyedOperator):
    """Sessions as the documentation writes them: right only if rows come in the order of time."""

    clicks = hf.Value(int, default=0)
    until = hf.Value(dt.datetime)

    def process(self, row: Any, key: Any) -> None:
        assert not self.is_late()
        if self.until:
            self.clear_timer(self.until)
        self.clicks += 1
        self.until = row.at + dt.timedelta(seconds=GAP)
        self.set_timer(self.until)

    def on_timer(self, at: Any, key: Any) -> Any:
        mark = self.watermark()
        assert mark is not None
        assert mark >= at
        yield {"k": key, "n": self.clicks, "ended": at}
        self.clear()


class Late(hf.KeyedOperator):
    """Tells which rows are late."""

    def process(self, row: Any, key: Any) -> Any:
        yield {"id": row.id, "late": self.is_late()}


def build(here: str, rows_per_step: int, apart: bool) -> hf.Topology:
    """`apart`: what follows the first operator of each branch is in an element of its own."""

    def next_to(stream: hf.Stream) -> hf.Stream:
        return stream.isolate() if apart else stream

    topology = hf.Topology("event_time")
    source = topology.source(hf.Rows(rows(), SCHEMA, rows_per_step=rows_per_step), name="numbers")
    stream = source.event_time("at", delay=f"{DELAY} seconds").consistent(period=0.02)
    first = stream.dedup("k", name="first")  # all but seven rows go: only time goes on
    inner = stream.aggregate("k", window=hf.tumbling(20), n=hf.count(), name="inner")
    outputs = {
        "dropped": next_to(first).aggregate([], window=hf.tumbling("1 minute"), n=hf.count(), name="dropped"),
        "best": next_to(first).top_n(1, by=[], order="-id", window=hf.tumbling("1 minute"), name="best"),
        "nested": next_to(inner).aggregate([], window=hf.tumbling("1 minute"), n=hf.sum("n"), name="nested"),
        "sorted": next_to(stream).sort(name="sorted"),
        "ordered": next_to(stream).keyed(
            "k", Ordered, "k long, n long, ended timestamp", name="ordered", order="event_time"
        ),
        "sessions": next_to(stream).aggregate("k", window=hf.session(GAP), n=hf.count(), name="sessions"),
        "late": next_to(stream).keyed("k", Late, "id long, late boolean", name="late"),
        "quiet": next_to(stream).keyed("k", Quiet, "k long, seen long, at timestamp", name="quiet"),
    }
    for name, out in outputs.items():
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    return topology


def main(rows_per_step: str, apart: str, here: str) -> None:
    run_local(build(here, int(rows_per_step), apart == "apart"), store=f"file:{here}/store", close=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
