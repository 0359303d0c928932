"""A small shop whose store is looked into: every kind of state, over files that come in portions."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.checkpoint.look.epochs import open_reader, read_manifest, regions
from holdfast.checkpoint.manifest import Manifest
from holdfast.ids import Epoch, RegionName
from holdfast.sinks import MemorySink
from holdfast.store.base import Store
from holdfast.testing import run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
REGION = RegionName("shop")
SCHEMA = "at timestamp, user string, n long, price double"

Row = dict[str, Any]


class Basket(hf.KeyedOperator):
    """What a user has put aside; a multiple of four empties it."""

    items = hf.Value(int, default=0)
    seen = hf.Map(str, int)

    def process(self, row: Any, key: Any) -> None:
        if row.n % 4 == 0:
            self.items = 0
            self.seen.clear()
        else:
            self.items += 1
            self.seen[str(row.n % 3)] = row.n


class Register:
    """A hosted operator: the sum so far."""

    def __init__(self) -> None:
        self.total = 0

    def process(self, row: Any, port: int) -> Any:
        self.total += row.n
        return (row.n, self.total)


class Counts(hf.Operator):
    """A hosted operator that declares its state: it is stored as a base and deltas."""

    users = hf.Map(str, int)

    def process(self, row: Any, port: int) -> Any:
        self.users[str(row.user)] = self.users.get(str(row.user), 0) + 1
        return (row.n, len(self.users))


def portion(seed: int, rows: int, users: int, first: int = 0) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "at": BEGIN + dt.timedelta(seconds=first + number),
            "user": None if chance.random() < 0.05 else f"u{chance.randrange(users)}",
            "n": chance.randrange(100),
            "price": round(chance.random() * 50, 2),
        }
        for number in range(rows)
    ]


def put(directory: Path, number: int, rows: Sequence[Row]) -> None:
    """One more file of input."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows]
    (directory / f"part-{number:04}.json").write_text("\n".join(lines) + "\n")


def topology(directory: Path) -> hf.Topology:
    made = hf.Topology("shop")
    source = hf.Files(str(directory), "json", SCHEMA, max_rows_per_step=40)
    rows = made.source(source, name="rows").consistent(REGION, period=3600)
    shelf = directory.parent.name
    streams = {
        "totals": rows.aggregate(
            "user",
            n=hf.count(),
            total=hf.sum("n"),
            mean=hf.avg("price"),
            least=hf.min("price"),
            last=hf.last("n"),
            kinds=hf.count_distinct("n"),
            all=hf.collect("n"),
            name="totals",
        ),
        "sales": rows.aggregate(
            "user", window=hf.sliding(60, 20, on="at", delay=5), sold=hf.sum("n"), name="sales"
        ),
        "baskets": rows.keyed("user", Basket, "user string", name="baskets"),
        "best": rows.top_n(2, by="user", order=["-n", "at"], name="best"),
        "first": rows.dedup("n", name="first"),
        "sorted": rows.sort("at", delay=30, name="sorted"),
        "register": rows.apply(Register, "n long, total long", name="register"),
        "counts": rows.apply(Counts, "n long, users long", name="counts"),
    }
    for name, stream in streams.items():
        stream.sink(MemorySink(f"{shelf}-{name}"), name=f"{name}_out")
    return made


def run(store: str, directory: Path, **options: Any) -> Epoch:
    """Process all there is; returns the newest epoch."""
    run_local(topology(directory), store, **options)
    shelf = directory.parent.name
    for name in ("totals", "sales", "baskets", "best", "first", "sorted", "register", "counts"):
        MemorySink.clear(f"{shelf}-{name}")
    return open_reader(store).epochs(REGION)[-1]


def manifest(store: Store, epoch: int) -> Manifest:
    assert regions(store) == [REGION]
    return read_manifest(store, REGION, Epoch(epoch))
