"""Child of test_hosted_time: event time goes on through Python operators in the driver, whose rows are counted in windows, sorted
and kept by key; over connections too, to the end of the input."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

import event_time_program as events

import holdfast as hf
from holdfast.testing import run_local

SCHEMA = events.SCHEMA
HELD = 12


def rows() -> list[tuple[int, int, dt.datetime]]:
    return events.rows(150)


class Some(hf.Operator):
    """No row, one or two: of each third row none, of each fifth two."""

    def process(self, row: Any, port: int) -> Any:
        return [] if row.id % 3 == 0 else [row] * (2 if row.id % 5 == 0 else 1)


class Held(hf.Operator):
    """Gives each row when twelve others have come."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def process(self, row: Any, port: int) -> Any:
        self.rows.append(row.asDict())
        return self.rows.pop(0) if len(self.rows) > HELD else None


class Apart(hf.Operator):
    """Even rows here, odd ones there, and errors at each seventh."""

    def process(self, row: Any, port: int) -> Any:
        self.submit(row, port="odd" if row.id % 2 else "even")
        if row.id % 7 == 0:
            raise ValueError("seven")


class Ends(hf.Operator):
    """Rows with another time than the declared one: ten seconds after it."""

    def process(self, row: Any, port: int) -> Any:
        return {"k": row.k, "until": row.at + dt.timedelta(seconds=10)}


class Through(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return row


async def called(row: dict[str, Any]) -> Any:
    return None if row["id"] % 3 == 0 else row


def build(here: str, rows_per_step: int, apart: bool) -> hf.Topology:
    """`apart`: what follows the Python operators is in elements of its own."""

    def next_to(stream: hf.Stream) -> hf.Stream:
        return stream.isolate() if apart else stream

    topology = hf.Topology("hosted_time")
    source = topology.source(hf.Rows(rows(), SCHEMA, rows_per_step=rows_per_step), name="numbers")
    stream = source.event_time("at", delay=f"{events.DELAY} seconds").consistent(period=0.02)
    some = next_to(stream.apply(Some, SCHEMA, name="some"))
    held = next_to(stream.apply(Held, SCHEMA, name="held"))
    rest = next_to(stream.dedup("k", name="first").apply(Through, SCHEMA, name="rest"))
    ports = stream.apply(Apart, schemas={"even": SCHEMA, "odd": SCHEMA}, name="ports", on_error="stream")
    ports.errors.sink(hf.MemorySink("errors of ports"), name="errors_of_ports")
    ends = next_to(stream.apply(Ends, "k long, until timestamp", name="ends"))
    calls = next_to(stream.async_map(called, SCHEMA, name="ask"))
    inner = stream.aggregate("k", window=hf.tumbling(20), n=hf.count(), name="inner")
    inner_schema = "k long, window_start timestamp, window_end timestamp, n long"
    again = next_to(inner.apply(Through, inner_schema, name="again"))
    every = {"window": hf.tumbling(20), "n": hf.count()}
    outputs = {
        "counted": some.aggregate([], name="counted", **every),
        "sorted": some.sort(name="sorted"),
        "twice": next_to(some.apply(Some, SCHEMA, name="more")).aggregate([], name="twice", **every),
        "late": some.keyed("k", events.Late, "id long, late boolean", name="late"),
        "held": held.aggregate([], name="held_count", **every),
        "declared": held.event_time("at", delay=30).aggregate([], name="declared", **every),
        "dropped": rest.aggregate([], window=hf.tumbling("1 minute"), n=hf.count(), name="dropped"),
        "even": next_to(ports["even"]).aggregate([], name="even_count", **every),
        "odd": next_to(ports["odd"]).aggregate([], name="odd_count", **every),
        "ends": ends.aggregate([], window=hf.tumbling(20, on="until"), n=hf.count(), name="ends_count"),
        "calls": calls.aggregate([], name="calls", **every),
        "nested": again.aggregate([], window=hf.tumbling("1 minute"), n=hf.sum("n"), name="nested"),
    }
    for name, out in outputs.items():
        out.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    return topology


def main(rows_per_step: str, apart: str, here: str) -> None:
    run_local(build(here, int(rows_per_step), apart == "apart"), store=f"file:{here}/store", close=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
