"""The application of a soak: all guarantees in one graph, over numbers that tell by themselves what must come out.

payments ─▶ doubled (Python workers) ─┬─▶ exact files       region `books`
                                      └─▶ totals per key ─▶ SQLite (upsert)
clicks   ─▶ best-effort files, counted
events   ─▶ a log ─▶ files            region `behind` reads the log
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.language.operators.aggregates import count, sum
from holdfast.language.topology import Topology
from holdfast.sinks.database.sink import DatabaseSink
from holdfast.sinks.files import FileSink
from holdfast.sources.beacon import Beacon

KEYS = 50
PERIOD_S = 3.0
LOG_S = 120.0
"""Rows of the log stay so long: its size must not grow for ever."""


@dataclass(frozen=True, slots=True)
class Places:
    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def database(self) -> Path:
        return self.root / "totals.db"

    def out(self, sink: str) -> Path:
        return self.root / "out" / sink


def doubled(table: pa.Table) -> pa.Table:
    """Runs in Python workers."""
    return pa.table({"id": table["id"], "key": table["key"], "cents": pc.multiply(table["id"], 2)})


def build(places: Places, rate: int) -> Topology:
    """`rate`: rows per second of each source."""
    topology = Topology("soak")

    def source(name: str) -> Beacon:
        return Beacon(rate=rate, rows_per_step=rate * 5)

    payments = topology.source(source("payments"), name="payments").consistent("books", period=PERIOD_S)
    keyed = payments.select("id", f"id % {KEYS} as key").map_arrow(
        doubled, "id long, key long, cents long", name="doubled"
    )
    keyed.sink(FileSink(places.out("exact"), "parquet", roll="30 seconds"), name="exact")
    totals = keyed.aggregate("key", n=count(), cents=sum("cents"), name="totals")
    totals.sink(
        DatabaseSink(f"sqlite:{places.database}", "totals", "upsert", key="key", create=True),
        name="totals_out",
    )

    clicks = topology.source(source("clicks"), name="clicks").select("id")
    clicks.sink(FileSink(places.out("clicks"), "parquet", partition_files=1), name="clicks_out")

    events = topology.source(source("arrivals"), name="arrivals").select("id").persist("events", keep=LOG_S)
    behind = events.consistent("behind", period=PERIOD_S)
    behind.sink(FileSink(places.out("events"), "parquet", roll="30 seconds"), name="events_out")
    return topology
