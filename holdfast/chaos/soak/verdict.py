"""What a soak gave, compared with what it must: rows are numbers, so the oracle needs no second run."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from holdfast.chaos.soak.app import KEYS, Places
from holdfast.sinks.files import FileSink


@dataclass(frozen=True, slots=True)
class Judged:
    """One sink. `rows`: that are there; `lost`: numbers below the highest that are not there."""

    sink: str
    promise: str
    rows: int
    lost: int
    counted: int
    doubled: int
    wrong: int
    out_of_order: int
    """Rows in a file behind one with a higher number."""

    @property
    def is_kept(self) -> bool:
        if self.promise == "best effort":
            return self.lost <= self.counted and not self.doubled and not self.wrong
        return not (self.lost or self.doubled or self.wrong or self.out_of_order)


def judge(places: Places, lost_rows: Mapping[str, int]) -> list[Judged]:
    exact = _numbers(
        places.out("exact"), "exact", "exactly-once", int(lost_rows.get("exact", 0)), ordered=False
    )
    return [
        exact,
        _totals(places, exact.rows),
        _numbers(
            places.out("events"),
            "events_out",
            "exactly-once",
            int(lost_rows.get("events_out", 0)),
            ordered=True,
        ),
        _numbers(
            places.out("clicks"),
            "clicks_out",
            "best effort",
            int(lost_rows.get("clicks_out", 0)),
            ordered=False,
        ),
    ]


def _numbers(directory: Path, sink: str, promise: str, counted: int, ordered: bool) -> Judged:
    """Numbers from 0 on. Files of a million rows are of a few MB, so all numbers of some hours fit into memory."""
    files = FileSink.files(str(directory)) if directory.exists() else []
    wrong = 0
    parts = []
    disorder = 0
    for name in files:
        table = pq.read_table(name)
        ids = table["id"].to_numpy()
        if "cents" in table.column_names:
            wrong += int((table["cents"].to_numpy() != ids * 2).sum())
        if ordered and len(ids):
            disorder += int((np.diff(ids) < 0).sum())
        parts.append(ids)
    every = np.concatenate(parts) if parts else np.array([], dtype=np.int64)
    if not len(every):
        return Judged(sink, promise, 0, 0, counted, 0, 0, 0)
    there = np.unique(every)
    lost = int(there[-1]) + 1 - len(there)
    return Judged(sink, promise, len(every), lost, counted, len(every) - len(there), wrong, disorder)


def _totals(places: Places, rows: int) -> Judged:
    """What the table has of each key, compared with the numbers that the other sink of the region has."""
    found: dict[int, tuple[Any, ...]] = {}
    if places.database.exists():
        with closing(sqlite3.connect(places.database)) as connection:
            found = {
                key: (n, cents) for key, n, cents in connection.execute("SELECT key, n, cents FROM totals")
            }
    right: dict[int, tuple[Any, ...]] = {}
    for key in range(min(KEYS, rows)):
        ids = np.arange(key, rows, KEYS, dtype=np.int64)
        right[key] = (len(ids), int(ids.sum()) * 2)
    strange = Counter(found.keys() - right.keys()).total()
    wrong = sum(found[key] != right[key] for key in right if key in found)
    lost = sum(key not in found for key in right)
    return Judged("totals_out", "exactly-once", len(found), lost, 0, 0, wrong + strange, 0)
