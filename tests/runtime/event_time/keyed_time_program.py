"""Child of test_keyed_time: event time and an order behind keyed Python operators, whose rows are counted in windows, sorted,
joined, deduplicated and kept by key; over connections too, to the end of the input."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import Any

import event_time_program as events

import holdfast as hf
from holdfast.testing import run_local

SCHEMA = "id long, k long, at timestamp, n long"


def rows() -> list[tuple[int, int, dt.datetime]]:
    return events.rows(150)


class Some(hf.KeyedOperator):
    """No row, one or two: of each third row none, of each fifth two. `n` numbers those of a row."""

    def process(self, row: Any, key: Any) -> Any:
        for n in range(0 if row.id % 3 == 0 else 2 if row.id % 5 == 0 else 1):
            yield {"id": row.id, "k": row.k, "at": row.at, "n": n}


class Ports(hf.KeyedOperator):
    """Late rows there, others here; fails at each seventh, which leaves nothing."""

    seen = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.seen += 1
        if self.is_late():
            self.submit({"id": row.id, "seen": self.seen}, port="late")
        else:
            yield {"id": row.id, "k": row.k, "at": row.at, "n": self.seen}
        if row.id % 7 == 0:
            raise ValueError("seven")


class Numbered(hf.KeyedOperator):
    """Numbers the rows of a key, as they come."""

    seen = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.seen += 1
        yield {"id": row.id, "n": row.n, "seen": self.seen}


class Failed(hf.KeyedOperator):
    """Numbers rows that failed: they have places, too."""

    seen = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.seen += 1
        yield {"id": json.loads(row.row)["id"], "seen": self.seen}


class Through(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return row


def build(here: str, rows_per_step: int, apart: bool) -> hf.Topology:
    """`apart`: what follows the keyed operators is in elements of its own."""

    def next_to(stream: hf.Stream) -> hf.Stream:
        return stream.isolate() if apart else stream

    topology = hf.Topology("keyed_time")
    source = topology.source(hf.Rows(rows(), events.SCHEMA, rows_per_step=rows_per_step), name="numbers")
    stream = source.event_time("at", delay=f"{events.DELAY} seconds").consistent(period=0.02)
    some = next_to(stream.keyed("k", Some, SCHEMA, name="some"))
    quiet = next_to(stream.keyed("k", events.Quiet, "k long, seen long, at timestamp", name="quiet"))
    ordered = stream.keyed(
        "k", events.Ordered, "k long, n long, ended timestamp", name="ordered", order="event_time"
    )
    schemas = {"main": SCHEMA, "late": "id long, seen long"}
    ports = stream.keyed("k", Ports, schemas=schemas, name="ports", on_error="stream")
    every = {"window": hf.tumbling(20), "n": hf.count()}
    outputs = {
        "counted": some.aggregate([], name="counted", **every),
        "sorted": some.sort(name="sorted"),
        "once": some.dedup("id", name="once"),
        "numbered": some.keyed("k", Numbered, "id long, n long, seen long", name="numbered"),
        "hosted": some.apply(Through, SCHEMA, name="hosted").aggregate([], name="hosted_count", **every),
        "joined": some.join(stream, "id", within="1 second", name="joined"),
        "quiet": quiet.aggregate([], window=hf.tumbling(20), n=hf.count(), name="quiet_count"),
        "quiet_sorted": quiet.sort(name="quiet_sorted"),
        "ended": next_to(ordered).aggregate(
            [], window=hf.tumbling(20, on="ended"), n=hf.sum("n"), name="ended"
        ),
        "main": next_to(ports["main"]).aggregate([], name="main_count", **every),
        "late": next_to(ports["late"]),
        "errors": ports.errors.keyed("operator", Failed, "id long, seen long", name="failed"),
    }
    for name, out in outputs.items():
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    return topology


def main(rows_per_step: str, apart: str, here: str, partitions: int = 2) -> None:
    topology = build(here, int(rows_per_step), apart == "apart")
    run_local(topology, store=f"file:{here}/store", close=True, partitions=partitions)


if __name__ == "__main__":
    main(*sys.argv[1:])
