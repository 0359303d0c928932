"""Topologies of the matrix (document 004, §7.1): each writes what it makes of numbers into exactly-once files.

Run as a child with: TOPOLOGY MODE DIRECTORY. What each must give is computed by `golden`, without holdfast. `cells` says which
topologies, modes and failures go together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.protocol.shape import MODES
from holdfast.testing import run_local

ROWS = 60
KEYS = 4
SCHEMA = "n long, k long"
FAILURES = {
    "an element, before its step": "step.begin=raise@7",
    "an element, after its step": "step.end=raise@11",
    "two elements": "step.end=raise@6;step.begin=raise@13",
    "while draining": "drain.begin=raise@1",
    "the store, at a part": "ckpt.op.put=raise@2",
    "the store, at the manifest": "ckpt.manifest.fsynced=raise@1",
    "the sink, while preparing": "sink.prepare=raise@1",
    "the commit": "sink.commit.begin=raise@1",
    "the reset after a failure": "step.end=raise@9;reset.begin=raise@{again}",
}
"""`{again}`: the first hit of a failpoint of resets after those with which the run begins."""


Golden = dict[str, list[tuple[int, ...]]]
Build = Callable[["Place"], None]
Watch = Callable[[pa.Table], pa.Table]


class Held(hf.Operator):
    """Counts rows and holds one back, until the next one or a drain."""

    seen = hf.Value(int, default=0)
    held = hf.List(int)

    def made(self, n: int) -> tuple[int, ...]:
        return (n,)

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        out = [self.made(n) for n in self.held]
        self.held.clear()
        self.held.append(row.n)
        return out

    def drain(self) -> Any:
        out = [self.made(n) for n in self.held]
        self.held.clear()
        return out


class Tens(Held):
    def made(self, n: int) -> tuple[int, ...]:
        return (n, n // 10)


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


class Numbers(hf.Operator):
    """Counts the rows that entered the region."""

    seen = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return (row.n, self.seen)


class Makes(hf.Operator):
    """Three threads make numbers together, up to four under a permit."""

    threads = 3
    replayable = True
    made = hf.Value(int, default=0)

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                for _ in range(min(4, ROWS - self.made)):
                    context.submit({"n": self.made})
                    self.made += 1
                if self.made == ROWS:
                    return
            context.wait(0.002)


class Later(hf.Operator):
    """Keeps what comes. Its two threads number it and let it go, a few rows under a permit; what is left goes in `drain`."""

    threads = 2
    waiting = hf.List(int)
    gone = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> None:
        self.waiting.append(row.n)

    def run(self, context: Any) -> None:
        while not context.wait(0.002):
            with context.permit():
                for row in self._let_go(5):
                    context.submit(row)

    def _let_go(self, rows: int) -> list[tuple[int, int]]:
        going, left = list(self.waiting)[:rows], list(self.waiting)[rows:]
        self.waiting.clear()
        self.waiting.extend(left)
        first, self.gone = self.gone + 1, self.gone + len(going)
        return [(n, first + place) for place, n in enumerate(going)]

    def drain(self) -> Any:
        return self._let_go(len(self.waiting))


class Place:
    """Where a topology of the matrix is built."""

    def __init__(self, mode: str, here: str, watch: Watch | None = None, **settings: Any) -> None:
        self.watch = watch
        self.topology = hf.Topology("matrix")
        self.settings: dict[str, Any] = {
            "period": 0.015,
            "mode": mode,
            "max_consecutive_resets": 30,
            **settings,
        }
        self.here = here

    def source(self, name: str, first: int = 0, region: str = "r") -> hf.Stream:
        return self.watched(self.rows(name, first).consistent(region, **self.settings), f"{name}_watched")

    def rows(self, name: str, first: int = 0) -> hf.Stream:
        """A source that is in no region by itself."""
        rows = [(first + n, n % KEYS) for n in range(ROWS)]
        return self.topology.source(hf.Rows(rows, SCHEMA, rows_per_step=4), name=name)

    def watched(self, stream: hf.Stream, name: str = "watched") -> hf.Stream:
        """Numbers at the beginning of a region, seen by a function in the workers if there is one."""
        return stream if self.watch is None else stream.map_arrow(self.watch, SCHEMA, name=name)

    def sink(self, stream: hf.Stream, name: str) -> None:
        stream.sink(hf.FileSink(f"{self.here}/{name}", "parquet"), name=f"{name}_out")


def chain(place: Place) -> None:
    tens = place.source("numbers").apply(Tens, SCHEMA, name="tens")
    place.sink(tens.isolate().aggregate("k", total=hf.sum("n"), emit="each", name="total"), "last")


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
    numbers = place.rows("numbers").consistent("r", **place.settings)
    start = place.watched(numbers)
    place.sink(start, "plain")
    place.sink(start.apply(Held, "n long", name="held"), "held")
    place.sink(numbers.isolate().dedup("k", name="once"), "once")  # the first of each key: needs an order


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


def composite(place: Place) -> None:
    """Two calls, each a region of its own that begins inside of the composite, with a composite in it."""

    @hf.composite
    def held(rows: hf.Stream) -> hf.Stream:
        return rows.isolate().apply(Held, "n long", name="held")

    @hf.composite(consistent=place.settings)
    def read(topology: hf.Topology, first: int) -> hf.Stream:
        return held(place.watched(place.rows("numbers", first)))

    for name, first in (("one", 0), ("two", 1000)):
        place.sink(read(place.topology, first, name=name), name)


def threads(place: Place) -> None:
    numbers = place.source("numbers")
    place.sink(numbers.apply(Later, "n long, gone long", name="later"), "later")
    made = place.topology.operator(Makes, [], schema="n long", name="makes").consistent("r", **place.settings)
    narrow = numbers.map_arrow(lambda table: table.select(["n"]), "n long", name="narrow")
    place.sink(made.union(narrow).isolate(), "both")


def replayable(place: Place) -> None:
    kept = place.rows("numbers").replayable(name="kept").consistent("r", **place.settings)
    place.sink(place.watched(kept).apply(Numbers, "n long, seen long", name="numbered"), "numbered")


TOPOLOGIES: dict[str, Build] = {
    "chain": chain, "diamond": diamond, "several sources": several_sources, "several sinks": several_sinks,
    "several regions": several_regions, "cycle": cycle, "autonomous port": autonomous_port, "fan-out": fan_out,
    "composite": composite, "threads": threads, "replayable": replayable,
}  # fmt: skip
DRAWN = ("composite", "threads", "replayable")
"""Of whose cells `make test` takes a few."""


def allows(topology: str, mode: str, failure: str = "") -> bool:
    """Whether the result of this cell is certain.

    Neither a cycle nor operators with threads can be in mode `independent`. The source before a replayable start is in no
    region: a step of its own that fails, or a death of the driver, may cost rows.
    """
    if topology in ("cycle", "threads"):
        return mode != "independent"
    return topology != "replayable" or "step." not in FAILURES.get(failure, "")


def cells(failures: Iterable[str]) -> list[tuple[str, str, str]]:
    chosen = [(topology, mode, failure) for topology in TOPOLOGIES for mode in MODES for failure in failures]
    return [cell for cell in chosen if allows(*cell)]


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
        case "composite":
            return {"one": [(n,) for n in numbers], "two": [(n,) for n in others]}
        case "threads":
            return {"later": [(n, n + 1) for n in numbers], "both": sorted((n,) for n in numbers * 2)}
        case "replayable":
            return {"numbered": [(n, n + 1) for n in numbers]}
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


def build(name: str, mode: str, here: str, watch: Watch | None = None, **settings: Any) -> hf.Topology:
    """`settings`: of all its regions."""
    place = Place(mode, here, watch, **settings)
    TOPOLOGIES[name](place)
    return place.topology


def main(name: str, mode: str, here: str) -> None:
    run_local(build(name, mode, here), store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
