"""Topologies of the matrix (document 004, §7.1): each writes what it makes of numbers into exactly-once files.

Run as a child with: TOPOLOGY MODE DIRECTORY. What each must give is computed by `golden`, without holdfast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.testing import run_local

ROWS = 60
KEYS = 4
SCHEMA = "n long, k long"
Golden = dict[str, list[tuple[int, ...]]]
Build = Callable[["Place"], None]


class Held(hf.Operator):
    """Counts rows and holds one back, until the next one or a drain."""

    seen = hf.Value(int, default=0)
    held = hf.List(int)

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        out = [(n,) for n in self.held]
        self.held.clear()
        self.held.append(row.n)
        return out

    def drain(self) -> Any:
        out = [(n,) for n in self.held]
        self.held.clear()
        return out


class Sends(hf.Operator):
    """Rows come on port 0, what became of them on the control port: it counts both."""

    sent = hf.Value(int, default=0)
    confirmed = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            self.confirmed += 1
            return None
        self.sent += 1
        return (row.n, self.sent)


class Confirms(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return (row.n,)


class Enriches(hf.Operator):
    """Numbers on port 0, which is consistent; hints, which may be lost, on port 1."""

    hints = hf.Value(int, default=0)
    seen = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> Any:
        if port == 1:
            self.hints += 1
            return None
        self.seen += 1
        return (row.n, self.seen)


class Place:
    """Where a topology of the matrix is built."""

    def __init__(self, mode: Any, here: str) -> None:
        self.topology = hf.Topology("matrix")
        self.mode = mode
        self.here = here

    def source(self, name: str, first: int = 0, region: str = "r") -> hf.Stream:
        rows = [(first + n, n % KEYS) for n in range(ROWS)]
        source = self.topology.source(hf.Rows(rows, SCHEMA, rows_per_step=4), name=name)
        return source.consistent(region, period=0.015, mode=self.mode, max_consecutive_resets=30)

    def sink(self, stream: hf.Stream, name: str) -> None:
        stream.sink(hf.FileSink(f"{self.here}/{name}", "parquet"), name=f"{name}_out")


def chain(place: Place) -> None:
    held = place.source("numbers").apply(Held, "n long", name="held")
    keyed = held.map_arrow(
        lambda table: table.append_column("k", pc.divide(table["n"], 10)), SCHEMA, name="tens"
    )
    place.sink(keyed.isolate().aggregate("k", total=hf.sum("n"), emit="each", name="total"), "last")


def diamond(place: Place) -> None:
    start = place.source("numbers")
    left = start.isolate().map_arrow(lambda table: table, SCHEMA, name="left")
    right = start.apply(Held, "n long", name="right")
    place.sink(left, "left")
    joined = left.isolate().map_arrow(lambda table: table.select(["n"]), "n long", name="narrow").union(right)
    place.sink(joined.isolate(), "joined")


def several_sources(place: Place) -> None:
    first, second = place.source("first"), place.source("second", 1000)
    union = first.union(second).isolate()
    place.sink(union.aggregate("k", n=hf.count(), name="counted"), "counted")


def several_sinks(place: Place) -> None:
    start = place.source("numbers")
    place.sink(start, "plain")
    place.sink(start.apply(Held, "n long", name="held"), "held")
    place.sink(start.isolate().dedup("k", name="once"), "once")


def several_regions(place: Place) -> None:
    place.sink(place.source("first", region="one").apply(Held, "n long", name="held"), "one")
    place.sink(place.source("second", 1000, region="two").isolate(), "two")


def cycle(place: Place) -> None:
    back = place.topology.feedback("n long")
    sent = place.topology.operator(
        Sends,
        inputs=[place.source("numbers")],
        control=[back.stream],
        schema="n long, sent long",
        name="sends",
    )
    back.complete(sent.apply(Confirms, "n long", name="confirms"))
    place.sink(sent, "sent")


def autonomous_port(place: Place) -> None:
    hints = place.topology.source(hf.Rows([(n,) for n in range(20)], "n long"), name="hints")
    made = place.topology.operator(
        Enriches, inputs=[place.source("numbers"), hints], schema="n long, seen long", name="enriches"
    )
    place.sink(made, "enriched")


def fan_out(place: Place) -> None:
    """Four wide, four deep."""
    start = place.source("numbers")
    for branch in range(4):
        stream = start
        for depth in range(4):
            stream = stream.isolate().map_arrow(lambda table: table, SCHEMA, name=f"b{branch}_{depth}")
        place.sink(stream, f"branch{branch}")


TOPOLOGIES: dict[str, Build] = {
    "chain": chain, "diamond": diamond, "several sources": several_sources, "several sinks": several_sinks,
    "several regions": several_regions, "cycle": cycle, "autonomous port": autonomous_port, "fan-out": fan_out,
}  # fmt: skip


def golden(name: str) -> Golden:
    """Rows of each sink, sorted."""
    numbers, others = list(range(ROWS)), list(range(1000, 1000 + ROWS))
    plain = [(n, n % KEYS) for n in numbers]
    match name:
        case "chain":
            return {"last": [(n // 10, sum(range(n // 10 * 10, n + 1))) for n in numbers]}
        case "diamond":
            return {"left": plain, "joined": sorted((n,) for n in numbers * 2)}
        case "several sources":
            return {"counted": [(k, 2 * ROWS // KEYS) for k in range(KEYS)]}
        case "several sinks":
            return {"plain": plain, "held": [(n,) for n in numbers], "once": [(n, n) for n in range(KEYS)]}
        case "several regions":
            return {"one": [(n,) for n in numbers], "two": [(n, n % KEYS) for n in others]}
        case "cycle" | "autonomous port":
            return {"sent" if name == "cycle" else "enriched": [(n, n + 1) for n in numbers]}
        case "fan-out":
            return {f"branch{branch}": plain for branch in range(4)}
    raise AssertionError(name)


def found(name: str, here: Path) -> Golden:
    """What was written. Of a changelog the newest row of each key counts."""
    result: Golden = {}
    for sink in golden(name):
        files = sorted((here / sink).glob("part-*.parquet"))
        rows = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
        if sink == "counted":
            rows = [(k, max(n for key, n in rows if key == k)) for k in {key for key, _ in rows}]
        result[sink] = sorted(rows)
    return result


def build(name: str, mode: Any, here: str) -> hf.Topology:
    place = Place(mode, here)
    TOPOLOGIES[name](place)
    return place.topology


def main(name: str, mode: str, here: str) -> None:
    run_local(build(name, mode, here), store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
