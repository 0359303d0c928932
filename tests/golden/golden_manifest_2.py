"""The job that wrote tests/golden/manifest-2, with manifest version 2. The store stays, so this file never changes its
meaning.

Orders and payments are in a region; clicks are outside of it, by best effort. What must come out is computed in
`golden_manifest_2_model`.
"""

from __future__ import annotations

import datetime as dt
import time
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from golden_content import Content
from golden_files import Row, set_times, totals_of, write_rows
from golden_manifest_2_model import CLICKS, CLICKS_LATER, computed, page_of, stamp

import holdfast as hf
from holdfast.language.connectors import Slice
from holdfast.testing import compare_changelog, compare_rows, compare_sequence

__all__ = ["CONTENT", "KILLED_AT", "MANIFEST", "OUTPUTS", "computed", "make_input", "topology"]

MANIFEST = 2
ORDER = "id long, user string, amount long, at timestamp"
PAYMENT = "n long, order long, user string, at timestamp"
OUTPUTS = {
    "ledger": compare_sequence,
    "totals": partial(compare_changelog, by="user", version="n"),
    "sessions": compare_rows,
    "sales": compare_rows,
    "matched": compare_rows,
    "paid": compare_rows,
    "near": compare_rows,
    "tally": compare_sequence,
    "visits": partial(compare_changelog, by="page", version="n"),
    "lately": compare_sequence,
}
"""What the sinks are called, and how their rows are compared."""


# --- operators --------------------------------------------------------------------------------------------------------


class Ledger(hf.Operator):
    """In the driver, with variables of every kind and attributes. What leaves depends on all of them."""

    totals = hf.Map(str, int)
    baskets = hf.Map(int, list)
    line = hf.List(int)
    recent = hf.Window(int, rows=60)
    title = hf.Value(str, default="")
    big = hf.Value(int, default=2**80)
    seen = hf.Value(int, default=0)

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.last: tuple[int, ...] = ()

    def process(self, row: Any, port: int) -> Iterator[tuple[Any, ...]]:
        self.seen += 1
        self.big += row.amount
        self.totals[row.user] = self.totals.get(row.user, 0) + row.amount
        self.baskets.setdefault(row.amount % 3, []).append(row.id)
        self.line.insert(len(self.line) // 2, row.id)
        if row.id % 3 == 0:
            del self.line[0]
        self.recent.append(row.amount)
        if row.id % 40 == 0:
            self.title = f"since {row.id}"
            self.totals.pop(f"u{row.id // 40:03}", None)
        self.names.add(row.user)
        self.last = (*self.last, row.id)[-3:]
        whole = [dict(self.totals), dict(self.baskets), list(self.line), list(self.recent)]
        small = [self.title, self.big, self.last, len(self.names)]
        yield row.id, self.seen, shown([*whole, *small])


class Sessions(hf.KeyedOperator):
    """Per key, with a timer that ends a session."""

    count = hf.Value(int, default=0)
    until = hf.Value(dt.datetime)
    spent = hf.Map(int, int)
    recent = hf.Window(int, rows=3)

    def process(self, row: Any, key: Any) -> None:
        if self.until is not None:
            self.clear_timer(self.until)
        self.count += 1
        self.spent[row.amount % 3] = self.spent.get(row.amount % 3, 0) + row.amount
        self.recent.append(row.id)
        self.until = row.at + dt.timedelta(seconds=30)
        self.set_timer(self.until)

    def on_timer(self, at: dt.datetime, key: Any) -> Iterator[Row]:
        said = f"{dict(self.spent)} {list(self.recent)}"
        yield {"user": key, "ended": at.isoformat(), "orders": self.count, "said": said}
        self.count = 0


class Tally(hf.Operator):
    """In the driver, outside of the region, with a checkpoint of its own."""

    pages = hf.Map(str, int)
    seen = hf.Value(int, default=0)

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int, int]]:
        if not self.seen:
            self.pages.update({f"page {number}": 0 for number in range(60)})
        self.seen += 1
        self.pages[row.page] = self.pages.get(row.page, 0) + 1
        yield row.n, self.seen, shown(dict(self.pages))


def shown(value: Any) -> int:
    return zlib.crc32(repr(value).encode())


class Files(hf.Files):
    """Slow, so that epochs come while there is still input."""

    pause_s = 0.0

    def next_slice(self) -> Slice | None:
        time.sleep(self.pause_s)
        return super().next_slice()


def unchanged(table: pa.Table) -> pa.Table:
    """An element between two others: it keeps batches while an epoch is established."""
    return table


# --- the graph --------------------------------------------------------------------------------------------------------


def topology(root: Path, resumed: bool = False) -> hf.Topology:
    """`resumed`: after the kill, when the source outside of the region has more rows, and epochs come by themselves."""
    made = hf.Topology("golden")
    region = {"name": "books", "keep": 1, **({"period": 0.02} if resumed else {"trigger": "manual"})}
    orders = Files(str(root / "input" / "orders"), "json", ORDER, max_files_per_step=1)
    payments = Files(str(root / "input" / "payments"), "json", PAYMENT, max_rows_per_step=2)
    orders.pause_s = payments.pause_s = 0.01 if resumed else 0.12
    clicks = [(n, page_of(n)) for n in range(CLICKS_LATER if resumed else CLICKS)]
    outside = made.source(hf.Rows(clicks, "n long, page string", rows_per_step=9), name="clicks")
    consistent = in_region(
        made.source(orders, name="orders").consistent(**region),
        made.source(payments, name="payments").consistent(**region),
    )
    for name, stream in {**consistent, **outside_of_it(outside)}.items():
        stream.sink(hf.FileSink(str(root / "output" / name), "json"), name=f"{name}_out")
    return made


def in_region(orders: hf.Stream, payments: hf.Stream) -> dict[str, hf.Stream]:
    """One stream per sink."""
    kept = orders.isolate().map_arrow(unchanged, ORDER, name="unchanged").isolate()
    totals = totals_of(kept)
    ended = "user string, ended string, orders long, said string"
    window = hf.sliding(20, 10, on="at", delay=2)
    every = hf.latest(rows=1000)
    return {
        "ledger": orders.isolate().apply(Ledger, "id long, seen long, shown long", name="ledger"),
        "totals": totals.checkpoint(form=hf.incremental(ratio=4)),
        "sessions": orders.keyed("user", Sessions, ended, name="sessions", on="at", delay=2),
        "sales": orders.aggregate([], window=window, n=hf.count(), total=hf.sum("amount"), name="sales"),
        "matched": orders.join(
            payments, {"id": "order"}, within=(30, 20), on="at", delay=2, how="left", name="matched"
        ),
        "paid": orders.join(payments, {"id": "order"}, keep=every, other_keep=every, name="paid").checkpoint(
            form=hf.groups(rows=32)
        ),
        "near": orders.join(
            payments,
            "user",
            keep=hf.latest(rows=12),
            other_keep=hf.latest(8),
            on="at",
            delay=2,
            name="near",
        ),
    }


def outside_of_it(clicks: hf.Stream) -> dict[str, hf.Stream]:
    """One stream per sink."""
    tally = clicks.apply(Tally, "n long, seen long, shown long", name="tally")
    visits = clicks.aggregate("page", n=hf.count(), last=hf.max("n"), name="visits")
    lately = clicks.aggregate([], window=hf.sliding(rows=10, every=4), total=hf.sum("n"), name="lately")
    return {
        "tally": tally.checkpoint(every=0.05),
        "visits": visits.checkpoint(every=0.001),
        "lately": lately.checkpoint(every=0.001),
    }


# --- how the store is made --------------------------------------------------------------------------------------------

KILLED_AT = "ckpt.epoch.published=kill@5"
"""The fifth epoch is published and not visible. As long as deltas pay, epochs are base, delta, base, delta, delta."""

CONTENT = Content(
    region="books",
    savepoint="third",
    keyed=("totals", "sessions"),
    variables=("ledger",),
    groups=("matched", "paid", "near"),
    joins=("matched", "paid", "near"),
    timers=("sessions",),
    own_variables=("tally",),
    own_keyed=("visits",),
    own_paced=("lately",),
    positions=("clicks",),
)

BEGIN = 1_767_225_600_000
FIRST, FILES, PER_FILE = 40, 15, 4


def make_input(directory: Path) -> None:
    """Many users order once; then few of them go on. Every third order is paid, soon after it or long before. The last
    order and payment come so much later that they close all windows."""
    orders = [
        {
            "id": n,
            "user": f"u{n if n < FIRST else n * 7 % 8:03}",
            "amount": n * 37 % 101,
            "at": stamp(BEGIN + n * 500 + n * 13 % 3 * 400),
        }
        for n in range(FIRST + FILES * PER_FILE)
    ]
    waits = {n: 1000 + n * 11 % 7 * 1000 for n in range(0, len(orders), 3)}
    paid = sorted((n * 500 + (wait if n % 2 else -18_000 - wait), n) for n, wait in waits.items())
    payments = [
        {"n": n, "order": order, "user": orders[order]["user"], "at": stamp(BEGIN + moment)}
        for n, (moment, order) in enumerate(paid)
    ]
    orders.append({"id": len(orders), "user": "last", "amount": 1, "at": stamp(BEGIN + 3_600_000)})
    payments.append({"n": len(payments), "order": -1, "user": "nobody", "at": stamp(BEGIN + 3_600_000)})
    cuts = [0, *range(FIRST, len(orders), PER_FILE), len(orders)]
    for number, (begin, end) in enumerate(pairwise(cuts)):
        write_rows(directory / "orders" / f"{number:02}.json", orders[begin:end])
    half = len(payments) // 2
    write_rows(directory / "payments" / "0.json", payments[:half])
    write_rows(directory / "payments" / "1.json", payments[half:])
    set_times(directory)
