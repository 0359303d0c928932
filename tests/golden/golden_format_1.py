"""The job that wrote tests/golden/format-1, with manifest version 1. The store stays, so this file never changes its
meaning."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from golden_files import Row, rows_of, totals_of

import holdfast as hf
from holdfast.testing import compare_changelog, compare_sequence

MANIFEST = 1
OUTPUTS = {
    "register": compare_sequence,
    "totals": partial(compare_changelog, by="user", version="n"),
    "tally": compare_sequence,
}


class Register:
    """State of many types: what it holds must come back exactly as it was."""

    def __init__(self) -> None:
        self.seen = 0
        self.totals: dict[str, int] = {}
        self.big = 10**30
        self.recent: tuple[int, ...] = ()
        self.names: set[str] = set()

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        self.big += row.amount
        self.totals[row.user] = self.totals.get(row.user, 0) + row.amount
        self.recent = (*self.recent, row.id)[-3:]
        self.names.add(row.user)
        return self.seen, row.id, self.totals[row.user], str(self.big), str(self.recent), len(self.names)


class Tally:
    """An operator outside of the region, with a checkpoint of its own."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return row.n, self.seen


def slowly(table: pa.Table) -> pa.Table:
    time.sleep(0.05)
    return table


def unchanged(table: pa.Table) -> pa.Table:
    """An element between two others: it keeps batches while an epoch is established."""
    return table


def topology(root: Path, resumed: bool = False) -> hf.Topology:
    """`resumed`: after the kill, when the source outside of the region has two rows more."""
    made = hf.Topology("golden")
    files = hf.Files(str(root / "input"), "json", "id long, user string, amount long", max_rows_per_step=7)
    orders = made.source(files, name="orders").consistent("books", period=0.02)
    register = orders.isolate().apply(
        Register,
        "seen long, id long, total long, big string, recent string, names long",
        name="register",
    )
    register.sink(hf.FileSink(str(root / "output" / "register"), "json"), name="register_out")
    paced = orders.map_arrow(slowly, "id long, user string, amount long", name="slowly")
    positive = paced.isolate().map_arrow(unchanged, "id long, user string, amount long", name="unchanged")
    totals = totals_of(positive.isolate())
    totals.sink(hf.FileSink(str(root / "output" / "totals"), "json"), name="totals_out")
    loose = made.source(hf.Rows([(n,) for n in range(12 if resumed else 10)], "n long"), name="loose")
    tally = loose.apply(Tally, "n long, seen long", name="tally").checkpoint(every=0.01)
    tally.sink(hf.FileSink(str(root / "output" / "tally"), "json"), name="tally_out")
    return made


# --- the same from the input alone ------------------------------------------------------------------------------------


def computed(root: Path) -> dict[str, list[Row]]:
    """What the sinks must show in the end."""
    rows = rows_of(root / "input", "*.json")
    return {
        "register": register_of(rows),
        "totals": totals_by_user(rows),
        "tally": tally_of(),
    }


def tally_of() -> list[Row]:
    return [{"n": n, "seen": n + 1} for n in range(12)]


def register_of(rows: list[Row]) -> list[Row]:
    found: list[Row] = []
    for seen in range(1, len(rows) + 1):
        so_far, row = rows[:seen], rows[seen - 1]
        amounts = [each["amount"] for each in so_far]
        own = [each["amount"] for each in so_far if each["user"] == row["user"]]
        found.append(
            {
                "seen": seen,
                "id": row["id"],
                "total": sum(own),
                "big": str(10**30 + sum(amounts)),
                "recent": str(tuple(each["id"] for each in so_far[-3:])),
                "names": len({each["user"] for each in so_far}),
            }
        )
    return found


def totals_by_user(rows: list[Row]) -> list[Row]:
    amounts: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        amounts[row["user"]].append(row["amount"])
    return [
        {
            "user": user,
            "n": len(of),
            "total": sum(of),
            "low": min(of),
            "top": max(of),
            "mean": sum(of) / len(of),
        }
        for user, of in amounts.items()
    ]
