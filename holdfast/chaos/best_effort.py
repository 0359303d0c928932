"""Four graphs with best-effort parts, for runs that are killed again and again, and what their sinks have in the end.

    chain    numbers ─┬─▶ first                                    best effort behind best effort
                      └─▶ middle ──▶ last ──▶ last
    behind   numbers ─┬─▶ exact                  (region)           best effort behind a region
                      └─▶ middle ──▶ last ──▶ last
    port     loose ──▶ port of merge ──▶ merged  (region)           best effort into a region
             exact ──▶ merge
    own      numbers ─┬─▶ totals per key ──▶ totals                 checkpoints of their own
                      └─▶ seen, in the driver ──▶ seen

Every row has a number of its own, so that a sink tells which ones it lacks and which came twice. Sinks of operators that
count rows tell how many they know of. Each step leaves its element and its rows in a *trail*.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.chaos.campaign import RunPlace, append
from holdfast.chaos.losses import SinkLosses
from holdfast.language.connectors import Slice
from holdfast.language.hosted import Operator
from holdfast.language.operators.aggregates import count
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.element.evaluation import Outcome, Work
from holdfast.runtime.element.loop import ElementLoop
from holdfast.sinks.files import FileSink
from holdfast.sources.beacon import Beacon

Graph = Literal["chain", "behind", "port", "own"]

ALONE: Mapping[Graph, tuple[str, ...]] = {
    "chain": ("numbers", "middle", "last"),
    "behind": ("middle", "last"),
    "port": ("loose",),
    "own": ("numbers", "seen"),
}
"""Elements outside of regions."""
KEYS = 7


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to do, and how slowly."""

    rows: int = 1500
    rows_per_step: int = 10
    pace_s: float = 0.002
    """Pause of a source before each step."""
    slow_s: float = 0.01
    """How long each batch takes in an element behind another one."""
    period_s: float = 0.05
    """Between epochs, and between checkpoints of an operator's own."""


class Place(RunPlace):
    """The same, and what each life left there."""

    __slots__ = ()

    def report(self, pid: int) -> Path:
        return self.root / f"report-{pid}.json"

    def steps(self, pid: int) -> list[tuple[str, int]]:
        """Element and rows of each step of one life, in the order in which they began."""
        return [(element, rows) for owner, element, rows in self._steps() if owner == pid]

    def most_rows(self) -> int:
        """How many rows the element that had most of them has begun to process, over all lives."""
        totals: Counter[str] = Counter()
        for _, element, rows in self._steps():
            totals[element] += rows
        return max(totals.values(), default=0)

    def _steps(self) -> list[tuple[int, str, int]]:
        lines = self.trail.read_text().splitlines() if self.trail.exists() else []
        words = [line.split() for line in lines]
        return [(int(owner), element, int(rows)) for owner, element, rows in words]


# --- topologies -------------------------------------------------------------------------------------------------------


class Paced(Beacon):
    """A beacon with a pause before each step."""

    pace_s = 0.0

    def next_slice(self) -> Slice | None:
        time.sleep(self.pace_s)
        return super().next_slice()


@dataclass(frozen=True, slots=True)
class Slowly:
    """Hands rows on, after a while."""

    seconds: float

    def __call__(self, table: pa.Table) -> pa.Table:
        time.sleep(self.seconds)
        return table.select(["id"])


def keyed(table: pa.Table) -> pa.Table:
    ids = table["id"].to_numpy()
    return pa.table({"id": table["id"], "k": pa.array(ids % KEYS)})


class Merge(Operator):
    """Exact rows by port 0, loose ones by port 1."""

    def process_batch(self, table: pa.Table, port: int) -> pa.Table:
        return pa.table({"id": table["id"], "port": pa.array([port] * table.num_rows, pa.int64())})


class Seen(Operator):
    """Numbers the rows that it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def process_batch(self, table: pa.Table, port: int) -> pa.Table:
        numbers = range(self.seen + 1, self.seen + table.num_rows + 1)
        self.seen += table.num_rows
        return pa.table({"id": table["id"], "seen": pa.array(numbers, pa.int64())})


def build(graph: Graph, place: Place, size: Size) -> Topology:
    """A topology of that graph. Each sink writes json files into a directory of its name."""
    topology = Topology(graph)
    _BUILD[graph](topology, place, size)
    return topology


def _numbers(topology: Topology, size: Size, name: str = "numbers") -> Stream:
    source = Paced(rows=size.rows, rows_per_step=size.rows_per_step, partitions=1)
    source.pace_s = size.pace_s
    return topology.source(source, name=name)


def _to(sink: str, stream: Stream, place: Place) -> None:
    stream.sink(FileSink(str(place.out(sink)), "json"), name=sink)


def _chain(topology: Topology, place: Place, size: Size) -> None:
    numbers = _numbers(topology, size)
    _to("first", numbers.map_arrow(Slowly(0.0), "id long", name="ids"), place)
    _two_more(numbers.isolate(), place, size)


def _two_more(numbers: Stream, place: Place, size: Size) -> None:
    middle = numbers.map_arrow(Slowly(size.slow_s), "id long", name="middle")
    last = middle.isolate().map_arrow(Slowly(size.slow_s), "id long", name="last")
    _to("last_out", last, place)


def _behind(topology: Topology, place: Place, size: Size) -> None:
    numbers = _numbers(topology, size).consistent("exact", period=size.period_s)
    _to("exact_out", numbers.map_arrow(Slowly(0.0), "id long", name="ids"), place)
    _two_more(numbers.autonomous(), place, size)


def _port(topology: Topology, place: Place, size: Size) -> None:
    exact = _numbers(topology, size, "exact").consistent("region", period=size.period_s)
    loose = _numbers(topology, size, "loose").map_arrow(Slowly(0.0), "id long", name="ids")
    merged = topology.operator(
        Merge, inputs=[exact, loose.autonomous()], schema="id long, port long", name="merge"
    )
    _to("merged", merged, place)


def _own(topology: Topology, place: Place, size: Size) -> None:
    numbers = _numbers(topology, size).map_arrow(keyed, "id long, k long", name="keys")
    totals = numbers.aggregate("k", n=count(), name="totals").checkpoint(every=size.period_s)
    _to("totals_out", totals, place)
    seen = numbers.isolate().apply(Seen, "id long, seen long", name="seen").checkpoint(every=size.period_s)
    _to("seen_out", seen, place)


_BUILD: Mapping[Graph, Callable[[Topology, Place, Size], None]] = {
    "chain": _chain,
    "behind": _behind,
    "port": _port,
    "own": _own,
}


def note_steps(trails: Mapping[str, Path]) -> None:
    """From here on each step of this process begins with a line in the trail of its topology, after its account was
    saved."""
    run_step = ElementLoop.run_step

    def noted(self: ElementLoop, work: Work) -> Outcome:
        append(trails[self.worker.plan.graph.name], f"{os.getpid()} {self.name} {work.rows}")
        return run_step(self, work)

    ElementLoop.run_step = noted  # type: ignore[method-assign]


# --- what the sinks have ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A sink: rows it should have, different ones of them it has, rows too many."""

    golden: int
    found: int
    repeated: int = 0


class Wrong(AssertionError):
    """A sink has a row that nobody wrote."""


def look(graph: Graph, place: Place, size: Size) -> dict[str, Found]:
    """What each sink has, by its files."""
    match graph:
        case "chain":
            return {sink: _ids(place, sink, size) for sink in ("first", "last_out")}
        case "behind":
            return {sink: _ids(place, sink, size) for sink in ("exact_out", "last_out")}
        case "port":
            return {"merged": _merged(place, size)}
        case "own":
            return {"totals_out": _totals(place, size), "seen_out": _seen(place, size)}


def losses(
    graph: Graph, place: Place, size: Size, counted: Mapping[str, int], killed: list[int]
) -> list[SinkLosses]:
    """Of each sink, after a last life that came to its end with these counts; `killed`: the processes before it."""
    last = [dict(place.steps(pid)) for pid in killed]
    held = sum(steps.get(element, 0) for steps in last for element in ALONE[graph])
    return [
        SinkLosses(
            graph, sink, len(killed), has.golden, has.found, has.repeated, counted.get(sink, 0), held,
            may_repeat=(graph, sink) == ("behind", "last_out"),
        )
        for sink, has in look(graph, place, size).items()
    ]  # fmt: skip


def _rows(place: Place, sink: str) -> list[dict[str, Any]]:
    """In the order in which they were written: by run or epoch, then by step."""
    files = sorted(place.out(sink).glob("part-*.json"), key=lambda path: _numbers_in(path.name))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def _numbers_in(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _distinct(sink: str, rows: list[Any], golden: set[Any]) -> Found:
    if foreign := set(rows) - golden:
        raise Wrong(f"{sink} has the row {foreign.pop()}, which nobody wrote")
    return Found(len(golden), len(set(rows)), len(rows) - len(set(rows)))


def _ids(place: Place, sink: str, size: Size) -> Found:
    return _distinct(sink, [row["id"] for row in _rows(place, sink)], set(range(size.rows)))


def _merged(place: Place, size: Size) -> Found:
    rows = [(row["port"], row["id"]) for row in _rows(place, "merged")]
    missing = set(range(size.rows)) - {id for port, id in rows if port == 0}
    if missing:
        raise Wrong(f"{len(missing)} exact rows are missing, such as {min(missing)}")
    return _distinct("merged", rows, {(port, id) for port in (0, 1) for id in range(size.rows)})


def _totals(place: Place, size: Size) -> Found:
    """The rows that the newest count of each key knows of."""
    golden = Counter(id % KEYS for id in range(size.rows))
    newest = {row["k"]: row["n"] for row in _rows(place, "totals_out")}
    for key, n in newest.items():
        if n > golden[key]:
            raise Wrong(f"key {key} has {n} rows instead of {golden[key]}")
    return Found(size.rows, sum(newest.values()))


def _seen(place: Place, size: Size) -> Found:
    """The rows that the operator knows of; one that it lost may still be in the sink."""
    rows = _rows(place, "seen_out")
    ids = _distinct("seen_out", [row["id"] for row in rows], set(range(size.rows)))
    return Found(size.rows, rows[-1]["seen"] if rows else 0, ids.repeated)
