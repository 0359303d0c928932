"""The job that wrote tests/golden/manifest-3, with manifest version 3. The store stays, so this file never changes its
meaning.

It is the job of golden_manifest_2, which never changes either, and beside it:

    audit    a Python operator that is slow while the store is made: epochs overtake batches that wait before it
    hints    in the region; clicks enter it by an autonomous port
    echo     outside of the region; orders leave for it
    taps     outside of the region; one step of it fails while the store is made, which costs LOST rows
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_manifest_2 as before
import pyarrow as pa
from golden_files import Row, rows_of
from golden_manifest_2 import KILLED_AT, ORDER, PAYMENT, Files, in_region, make_input, outside_of_it, shown
from golden_manifest_2_model import CLICKS, CLICKS_LATER, crc, page_of
from golden_manifest_2_model import computed as computed_before

import holdfast as hf
from holdfast.testing import compare_rows, compare_sequence

__all__ = ["CONTENT", "KILLED_AT", "LOST", "MANIFEST", "OUTPUTS", "computed", "make_input", "topology"]

MANIFEST = 3
TAPS, TAPS_LATER, TAPS_PER_STEP = 20, 25, 5
"""Before the kill, and after it."""
SLOW_FROM = 52
LOST = {"taps": TAPS_PER_STEP}
"""Rows that elements lose while the store is made. Nothing else is ever lost."""


def compare_distinct(golden: Iterable[Row], found: Iterable[Row], what: str = "rows") -> None:
    """A region that goes back to an epoch sends again what left it since."""
    compare_rows(*({repr(row): row for row in rows}.values() for rows in (golden, found)), what=what)


OUTPUTS = {
    **before.OUTPUTS,
    "audit": compare_sequence,
    "hints": compare_rows,
    "echo": compare_distinct,
    "taps": compare_sequence,
}
"""What the sinks are called, and how their rows are compared."""


# --- operators --------------------------------------------------------------------------------------------------------


class Making:
    """On while the store is made: then operators are slow, and fail."""

    on = False


class Audit(hf.Operator):
    """Slow in the end, so that batches wait before it when a token comes."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int, int]]:
        time.sleep(0.3 if Making.on and row.id >= SLOW_FROM else 0)
        self.seen.append(row.amount)
        yield row.id, len(self.seen), shown(self.seen)


class Hints(hf.Operator):
    """Orders at port 0, clicks at port 1. Nobody knows in which order they meet."""

    def __init__(self) -> None:
        self.seen: tuple[list[int], list[int]] = ([], [])

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int, int]]:
        self.seen[port].append(row.id if port == 0 else row.n)
        yield port, len(self.seen[port]), shown(self.seen[port])


def ids(table: pa.Table) -> pa.Table:
    return table.select(["id"])


def fails_once(table: pa.Table) -> pa.Table:
    """Its source goes on behind the rows of the step that failed."""
    if Making.on and TAPS_PER_STEP in table.column("n").to_pylist():
        raise ValueError("this step is lost")
    return table


# --- the graph --------------------------------------------------------------------------------------------------------


def topology(root: Path, resumed: bool = False) -> hf.Topology:
    """`resumed`: after the kill, when the sources outside of the region have more rows, and epochs come by themselves."""
    Making.on = not resumed
    made = hf.Topology("golden")
    region = {"name": "books", "keep": 1, **({"period": 0.02} if resumed else {"trigger": "manual"})}
    files = Files(str(root / "input" / "orders"), "json", ORDER, max_files_per_step=1)
    more_files = Files(str(root / "input" / "payments"), "json", PAYMENT, max_rows_per_step=2)
    files.pause_s = more_files.pause_s = 0.01 if resumed else 0.3
    orders = made.source(files, name="orders").consistent(**region)
    payments = made.source(more_files, name="payments").consistent(**region)
    clicked = [(n, page_of(n)) for n in range(CLICKS_LATER if resumed else CLICKS)]
    clicks = made.source(hf.Rows(clicked, "n long, page string", rows_per_step=9), name="clicks")
    tapped = [(n,) for n in range(TAPS_LATER if resumed else TAPS)]
    taps = made.source(hf.Rows(tapped, "n long", rows_per_step=TAPS_PER_STEP), name="taps")
    hints = made.operator(
        Hints,
        inputs=[orders, clicks.autonomous()],
        schema="port long, seen long, shown long",
        name="hints",
    )
    streams = {
        **in_region(orders, payments),
        **outside_of_it(clicks),
        "audit": orders.isolate().apply(Audit, "id long, seen long, shown long", name="audit"),
        "hints": hints,
        "echo": orders.autonomous().map_arrow(ids, "id long", name="echo"),
        "taps": taps.map_arrow(fails_once, "n long", name="fails_once"),
    }
    for name, stream in streams.items():
        stream.sink(hf.FileSink(str(root / "output" / name), "json"), name=f"{name}_out")
    return made


CONTENT = replace(
    before.CONTENT,
    positions=(),
    captured=("orders.0--audit",),
    entrances=("clicks.0--hints",),
    exits=("orders.0--echo",),
    accounts=("clicks", "tally", "echo", "taps"),
    losing=tuple(LOST),
)


# --- the same from the input alone ------------------------------------------------------------------------------------


def computed(root: Path) -> dict[str, list[Row]]:
    """The rows of every sink; of change logs the last row of each key."""
    orders = rows_of(root / "input" / "orders", "*.json")
    return {
        **computed_before(root),
        "audit": [
            {"id": row["id"], **_seen([each["amount"] for each in orders[: number + 1]])}
            for number, row in enumerate(orders)
        ],
        "hints": [
            {"port": port, **_seen(numbers[: end + 1])}
            for port, numbers in enumerate(([row["id"] for row in orders], list(range(CLICKS_LATER))))
            for end in range(len(numbers))
        ],
        "echo": [{"id": row["id"]} for row in orders],
        "taps": [{"n": n} for n in range(TAPS_LATER) if n // TAPS_PER_STEP != 1],
    }


def _seen(numbers: list[int]) -> Row:
    return {"seen": len(numbers), "shown": crc(numbers)}
