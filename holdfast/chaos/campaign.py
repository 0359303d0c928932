"""What the campaigns on Spark run: an input, a topology of three elements over it, and an oracle.

    orders (json files) ─┬─▶ every third one ──▶ parquet files                          same element as the source
                         ├─▶ ledger, hosted in the driver, in order ──▶ json files      an element of its own
                         └─▶ cents ──▶ doubled (Arrow) ──▶ totals per user ──▶ csv      an element of its own

The oracle reads the input again with code that knows nothing of holdfast. The ledger leaves a *trail*: one line per
step with the rows it took, so that every kill can tell how many rows were processed again because of it.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.language.connectors import Slice
from holdfast.language.operators.aggregates import avg, count, max, sum
from holdfast.language.topology import Topology
from holdfast.protocol.shape import Mode
from holdfast.sinks.files import FileSink
from holdfast.sources.files import Files

REGION = "books"
USERS = 7


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to do. A step takes about a third of a second on two cores."""

    files: int = 6
    rows_per_file: int = 250
    rows_per_step: int = 40
    period_s: float = 0.8
    mode: Mode = "async"
    work_s: float = 0.0
    """How long each Arrow batch keeps its Python worker busy: gives kills something to hit."""
    max_resets: int = 5
    pace_s: float = 0.0
    """Pause of the source before each step, so that it does not run far ahead of slower elements."""

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Directories of one run, over all its lives."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def trail(self) -> Path:
        return self.root / "trail"

    def out(self, sink: str) -> Path:
        return self.root / "out" / sink


class Place(RunPlace):
    """The same, and where the input is."""

    __slots__ = ()

    @property
    def input(self) -> Path:
        return self.root / "input"

    def epoch(self) -> int:
        """The newest epoch. Looks at the directory only: works whatever happened to the owner."""
        try:
            names = os.listdir(self.store / "epochs" / REGION)
        except FileNotFoundError:
            return 0
        return sorted([0, *(int(name[:12]) for name in names if name.endswith(".manifest"))])[-1]

    def write_input(self, size: Size, seed: int) -> None:
        """Orders, whose `id` grows over all files."""
        self.input.mkdir(parents=True)
        chance = random.Random(f"orders {seed}")
        for number in range(size.files):
            rows = (
                {"id": id, "user": f"u{chance.randrange(USERS)}", "amount": chance.randrange(1, 1000)}
                for id in range(number * size.rows_per_file, (number + 1) * size.rows_per_file)
            )
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (self.input / f"orders-{number:03}.json").write_text(text)


# --- topology ---------------------------------------------------------------------------------------------------------


class Paced(Files):
    """Files that arrive with a pause before each step."""

    pace_s = 0.0

    def next_slice(self) -> Slice | None:
        time.sleep(self.pace_s)
        return super().next_slice()


class Ledger:
    """Numbers every order and keeps a total per user; notes in the trail what each step brought."""

    def __init__(self, place: Place) -> None:
        self.seen = 0
        self.totals: dict[str, int] = {}
        self._place = place

    def process_batch(self, table: pa.Table, port: int) -> list[tuple[int, int, str, int]]:
        rows = table.to_pylist()
        append(self._place.trail, f"# {os.getpid()} {rows[0]['id']} {rows[-1]['id']} {self._place.epoch()}")
        written = []
        for row in rows:
            self.seen += 1
            self.totals[row["user"]] = self.totals.get(row["user"], 0) + row["amount"]
            written.append((self.seen, row["id"], row["user"], self.totals[row["user"]]))
        return written


@dataclass(frozen=True, slots=True)
class Doubled:
    """Twice the cents, by a Python worker that takes its time."""

    work_s: float

    def __call__(self, table: pa.Table) -> pa.Table:
        until = time.monotonic() + self.work_s
        while time.monotonic() < until:
            pass
        return pa.table({"user": table["user"], "cents": pc.multiply(table["cents"], 2)})


def append(path: Path, line: str) -> None:
    """One write: lines of several processes do not mix, and a killed writer leaves no half line."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


def build(place: Place, size: Size) -> Topology:
    topology = Topology("campaign")
    source = Paced(
        str(place.input), "json", "id long, user string, amount long", max_rows_per_step=size.rows_per_step
    )
    source.pace_s = size.pace_s
    orders = topology.source(source, name="orders").consistent(
        REGION,
        mode=size.mode,
        period=size.period_s,
        drain_timeout=60,
        reset_timeout=60,
        max_consecutive_resets=size.max_resets,
    )
    thirds = orders.filter("amount % 3 = 0").select("id", "upper(user) as user")
    thirds.sink(FileSink(str(place.out("thirds")), "parquet"), name="thirds_out")
    ledger = orders.isolate().apply(
        Ledger(place), "seq long, id long, user string, total long", name="ledger"
    )
    ledger.sink(FileSink(str(place.out("ledger")), "json"), name="ledger_out")
    cents = orders.isolate().with_columns(cents="amount * 100").select("user", "cents")
    doubled = cents.map_arrow(Doubled(size.work_s), "user string, cents long", name="doubled")
    totals = doubled.aggregate(
        "user", n=count(), total=sum("cents"), top=max("cents"), mean=avg("cents"), name="totals"
    )
    totals.sink(FileSink(str(place.out("totals")), "csv"), name="totals_out")
    return topology


# --- oracle -----------------------------------------------------------------------------------------------------------


class Wrong(AssertionError):
    """The output is not what the input says."""


def check(place: Place, *, complete: bool = True) -> None:
    """The output is exactly what the input says; `complete=False`: a correct part of it, nothing twice."""
    lines = [line for path in sorted(place.input.iterdir()) for line in path.read_text().splitlines()]
    orders = [json.loads(line) for line in lines]
    _check_ledger(place, orders, complete)
    _check_thirds(place, orders, complete)
    _check_totals(place, orders, complete)


def _check_ledger(place: Place, orders: list[dict[str, Any]], complete: bool) -> None:
    running: dict[str, int] = defaultdict(int)
    wanted = []
    for seq, row in enumerate(orders, 1):
        running[row["user"]] += row["amount"]
        wanted.append((seq, row["id"], row["user"], running[row["user"]]))
    files = sorted(place.out("ledger").glob("part-*.json"))
    read = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    found = sorted((row["seq"], row["id"], row["user"], row["total"]) for row in read)
    _same("ledger", wanted, found, complete)


def _check_thirds(place: Place, orders: list[dict[str, Any]], complete: bool) -> None:
    wanted = [(row["id"], row["user"].upper()) for row in orders if row["amount"] % 3 == 0]
    tables = [pq.read_table(path) for path in sorted(place.out("thirds").glob("part-*.parquet"))]
    found = sorted((row["id"], row["user"]) for table in tables for row in table.to_pylist())
    _same("thirds", wanted, found, complete)


def _same(what: str, wanted: list[tuple[Any, ...]], found: list[tuple[Any, ...]], complete: bool) -> None:
    """Sorted rows, all of them; or the first ones."""
    for number, (right, row) in enumerate(zip(wanted, found, strict=False)):
        if row != right:
            raise Wrong(f"{what}: row {number} is {row} instead of {right}")
    if len(found) > len(wanted):
        raise Wrong(f"{what}: {len(found) - len(wanted)} rows too many, first {found[len(wanted)]}")
    if complete and len(found) < len(wanted):
        raise Wrong(f"{what}: {len(wanted) - len(found)} rows missing, first {wanted[len(found)]}")


def _check_totals(place: Place, orders: list[dict[str, Any]], complete: bool) -> None:
    """A changelog: every row is a truth about its user, none is told twice, the last one is the whole truth."""
    histories = _histories(orders)
    told: dict[str, set[int]] = defaultdict(set)
    for user, n, total, top, mean in _totals(place):
        if n in told[user]:
            raise Wrong(f"totals: {user} with {n} orders is visible twice")
        if not 1 <= n <= len(histories[user]) or histories[user][n - 1] != (total, top, mean):
            raise Wrong(f"totals: {user} with {n} orders is {(total, top, mean)}")
        told[user].add(n)
    for user, history in histories.items() if complete else ():
        if len(history) not in told[user]:
            raise Wrong(f"totals: the last state of {user} ({len(history)} orders) is missing")


def _histories(orders: Iterable[dict[str, Any]]) -> dict[str, list[tuple[int, int, float]]]:
    histories: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for row in orders:
        cents, history = row["amount"] * 200, histories[row["user"]]
        total, top, _ = history[-1] if history else (0, 0, 0.0)
        history.append((total + cents, cents if cents > top else top, (total + cents) / (len(history) + 1)))
    return histories


def _totals(place: Place) -> list[tuple[str, int, int, int, float]]:
    rows = []
    for path in sorted(place.out("totals").glob("part-*.csv")):
        header, *lines = path.read_text().splitlines()
        if header != "user,n,total,top,mean":
            raise Wrong(f"totals: {path} begins with {header!r}")
        for line in lines:
            user, n, total, top, mean = line.split(",")
            rows.append((user, int(n), int(total), int(top), float(mean)))
    return rows
