"""The demonstration's topology: one graph in which three sinks promise three different things.

orders ──▶ signed ──▶ debits ──┐
                               ├──▶ accounts (per customer) ──▶ files          exactly-once
payments ─▶ accepted ─▶ credits┘
                    ├──────────▶ files                                         exactly-once
                    └──────────▶ notification log, which cannot retract        at-least-once
clicks ───▶ pages ──▶ files, outside of any region                             best effort
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.demo.generate import signature
from holdfast.language.operators import aggregates as agg
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.sinks.files import FileSink
from holdfast.sinks.foreach_batch import ForeachBatch
from holdfast.sources.files import Files

REGION = "sales"
CLICKS = "clicks"
"""Name of the best-effort source, and of the element that begins with it."""
PERIOD_S = 1.0

ORDERS = (
    "id long, customer string, item string, quantity int, price_cents long, at timestamp, signature string"
)
PAYMENTS = "order long, customer string, cents long, method string, status string, at timestamp"
CLICK = "id long, customer string, page string, at timestamp"


class Places:
    """Where one run reads and writes."""

    def __init__(self, input: Path, output: Path) -> None:
        self.input, self.output = input, output
        self.accounts, self.payments, self.clicks = (output / n for n in ("accounts", "payments", "clicks"))
        self.notifications = output / "notifications.jsonl"
        self.store = f"file:{output / 'store'}"


def build(places: Places, *, rows_per_step: int = 6_000) -> Topology:
    """The topology over the files in `places`."""
    topology = Topology("shop")
    orders = _source(topology, places, "orders", ORDERS, rows_per_step).consistent(REGION, period=PERIOD_S)
    payments = _source(topology, places, "payments", PAYMENTS, rows_per_step).consistent(
        REGION, period=PERIOD_S
    )

    accepted = payments.filter("status = 'accepted' and cents > 0").select(
        "order", "lower(trim(customer)) as customer", "cents", "lower(method) as method", "at"
    )
    accepted.sink(FileSink(str(places.payments), "parquet", partition_files=1), name="payments_out")
    accepted.sink(ForeachBatch(append_to(places.notifications)), name="notifications")
    _accounts(orders, accepted).sink(FileSink(str(places.accounts), "json"), name="accounts_out")

    # Not a multiple of a file's rows: files are torn, so Python workers read their lines, and may die doing so.
    clicks = _source(topology, places, CLICKS, CLICK, rows_per_step * 2 // 3)
    pages = clicks.select("id", "lower(trim(customer)) as customer", "page", "at")
    pages.sink(FileSink(str(places.clicks), "parquet"), name="clicks_out")
    return topology


def _source(topology: Topology, places: Places, kind: str, schema: str, rows_per_step: int) -> Stream:
    path = str(places.input / kind)
    return topology.source(Files(path, "json", schema=schema, max_rows_per_step=rows_per_step), name=kind)


def _accounts(orders: Stream, accepted: Stream) -> Stream:
    """What every customer ordered and paid so far."""
    signed = orders.map_arrow(drop_forged, ORDERS).filter("quantity > 0")
    debits = signed.select(
        "lower(trim(customer)) as customer",
        "1L as events",
        "1L as orders",
        "quantity * price_cents as ordered_cents",
        "0L as paid_cents",
    )
    credits = accepted.select(
        "customer", "1L as events", "0L as orders", "0L as ordered_cents", "cents as paid_cents"
    )
    return debits.union(credits).aggregate(
        "customer",
        name="accounts",
        events=agg.count(),
        orders=agg.sum("orders"),
        ordered_cents=agg.sum("ordered_cents"),
        paid_cents=agg.sum("paid_cents"),
        largest_cents=agg.max("ordered_cents"),
    )


def drop_forged(orders: pa.Table) -> pa.Table:
    """Only the orders that the shop's till has signed. Runs in Spark's Python workers."""
    columns = ("id", "customer", "item", "quantity", "price_cents")
    genuine = [signature(*fields) for fields in zip(*(orders[c].to_pylist() for c in columns), strict=True)]
    same = [given == right for given, right in zip(orders["signature"].to_pylist(), genuine, strict=True)]
    return orders.filter(pa.array(same, pa.bool_()))


def append_to(path: Path) -> Callable[[Any, int], None]:
    """A sink's function that can only append: what is written stays written, whatever happens to the epoch."""

    def notify(rows: Any, step: int) -> None:
        table = rows if isinstance(rows, pa.Table) else rows.select("order", "customer", "cents").toArrow()
        lines = [
            json.dumps({"order": row["order"], "text": f"{row['customer']}: {row['cents']} cents received"})
            for row in table.to_pylist()
        ]
        append_lines(path, lines)

    return notify


def append_lines(path: Path, lines: list[str]) -> None:
    """Append by one write; half a line that a killed writer left is closed first."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        data = ("\n" if torn else "").encode() + "".join(f"{line}\n" for line in lines).encode()
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
