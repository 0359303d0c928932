"""The topology of the crash campaigns, its input, its oracle, and child processes that run it.

Four elements: orders (json files) → hosted ledger → files; orders → map (isolated) → aggregate (isolated) → files.
The oracle reads the same input files with code that knows nothing of holdfast.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
import pyarrow as pa
import pyarrow.compute as pc
from faults import DRIVER_KILLED, fired

from holdfast import failpoints
from holdfast.errors import HoldfastError
from holdfast.language.operators.aggregates import count, max, sum
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.testing.local import run_local

FILES, ROWS_PER_FILE = 5, 48
ROWS = FILES * ROWS_PER_FILE
ROWS_PER_STEP = 10
REGION = "books"
PACE = {"fp", "arm_after_epoch", "arm_after_row", "step_s", "schedule"}


# --- input ------------------------------------------------------------------------------------------------------------


def make_input(directory: Path, seed: int = 7) -> Path:
    """Several json files of orders; `id` grows over all of them."""
    directory.mkdir(parents=True)
    chance = random.Random(seed)
    for number in range(FILES):
        lines = [
            json.dumps(
                {
                    "id": number * ROWS_PER_FILE + row,
                    "user": f"u{chance.randrange(7)}",
                    "amount": chance.randrange(1, 1000),
                }
            )
            for row in range(ROWS_PER_FILE)
        ]
        (directory / f"orders-{number:03}.json").write_text("\n".join(lines) + "\n")
    return directory


def read_input(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in sorted(directory.iterdir()) for line in path.read_text().splitlines()
    ]


# --- topology ---------------------------------------------------------------------------------------------------------


class RunningLedger:
    """Numbers every order and keeps totals per user."""

    def __init__(self) -> None:
        self.seen = 0
        self.totals: dict[str, int] = {}

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        self.totals[row.user] = self.totals.get(row.user, 0) + row.amount
        return (self.seen, row.id, row.user, self.totals[row.user])


@dataclass
class Pace:
    """Slows the source so that epochs lie between its steps, arms failpoints in the middle of the run, and notes
    every step in the failpoints' log: so one file tells what was read before and after a fault."""

    place: Place
    fp: str = ""
    arm_after_epoch: int = 1
    arm_after_row: int = 40
    step_s: float = 0.003
    schedule: bool = True
    _armed: bool = False

    def __call__(self, table: pa.Table) -> pa.Table:
        ids = table["id"].to_pylist()
        epoch = newest_epoch(self.place.store)
        with open(self.place.hits, "a") as file:
            file.write(f"# {os.getpid()} {ids[0]} {ids[-1]} {epoch}\n")
        if self.fp and not self._armed and epoch >= self.arm_after_epoch and ids[0] >= self.arm_after_row:
            arm_in_turn(self.fp)
            self._armed = True
        # Behind schedule: a slow disk must not mean fewer epochs. After the fault there is no hurry to wait for.
        behind = self.schedule and epoch < ids[0] * 8 // ROWS and not any(failpoints.fired().values())
        time.sleep(0.04 if behind else self.step_s)
        cents = pc.multiply(table["amount"], 100)
        return pa.table({"id": table["id"], "user": table["user"], "cents": cents})


def arm_in_turn(text: str) -> None:
    """Arm what stands before the first ">"; as soon as one of it fires, what stands behind takes its place.

    So a later fault cannot fire before the earlier one: a commit that must fail after a certain publish, say.
    """
    first, *later = text.split(">")
    act = failpoints._act

    def arm_next_and_act(name: str, armed: Any) -> bool:
        if later:
            failpoints.arm(later.pop(0))
        return act(name, armed)

    failpoints.arm(first)
    if later:
        failpoints._act = arm_next_and_act


def topology(
    place: Place,
    *,
    mode: str = "async",
    period: float = 0.03,
    pace: Callable[[pa.Table], pa.Table] | None = None,
    trigger: str | None = None,
    max_consecutive_resets: int = 5,
) -> Topology:
    made = Topology("campaign")
    source = Files(
        str(place.input), "json", "id long, user string, amount long", max_rows_per_step=ROWS_PER_STEP
    )
    orders = made.source(source, name="orders").consistent(
        REGION,
        mode=mode,
        period=None if trigger else period,
        trigger=trigger,
        drain_timeout=20,
        reset_timeout=20,
        max_consecutive_resets=max_consecutive_resets,
    )
    ledger = orders.isolate().apply(
        RunningLedger, "seq long, id long, user string, total long", name="ledger"
    )
    ledger.sink(FileSink(str(place.ledger), "json"), name="ledger_out")
    cents = orders.map_arrow(pace or Pace(place), "id long, user string, cents long", name="pace")
    doubled = cents.isolate().map_arrow(_doubled, "user string, cents long", name="doubled")
    totals = doubled.isolate().aggregate(
        "user", n=count(), total=sum("cents"), top=max("cents"), name="totals"
    )
    totals.sink(FileSink(str(place.totals), "csv"), name="totals_out")
    return made


def _doubled(table: pa.Table) -> pa.Table:
    return pa.table({"user": table["user"], "cents": pc.multiply(table["cents"], 2)})


@dataclass(frozen=True)
class Place:
    """Directories of one run. `kind` is the store's back end: "file" or "sqlite"."""

    input: Path
    root: Path
    kind: str = "file"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def url(self) -> str:
        return f"{self.kind}:{self.store}"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    @property
    def totals(self) -> Path:
        return self.root / "totals"

    @property
    def hits(self) -> Path:
        return self.root / "failpoint-hits"


def newest_epoch(store: Path) -> int:
    """Looks at the directory or the file only: works for a store whose owner is dead, stopped or busy."""
    if store.is_file():
        return newest_epoch_in_database(store)
    try:
        names = os.listdir(store / "epochs" / REGION)
    except FileNotFoundError:
        return 0
    return builtin_max((int(n[:12]) for n in names if n.endswith(".manifest")), default=0)


def newest_epoch_in_database(store: Path) -> int:
    """0 if the file is damaged."""
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        found = connection.execute("SELECT max(epoch) FROM epochs WHERE region = ?", (REGION,)).fetchone()[0]
        return int(found or 0)
    except (sqlite3.Error, ValueError):
        return 0
    finally:
        connection.close()


def builtin_max(values: Any, default: int) -> int:
    return sorted([default, *values])[-1]


# --- oracle -----------------------------------------------------------------------------------------------------------


def ledger_rows(place: Place) -> list[tuple[Any, ...]]:
    """Visible rows, file after file."""
    rows = []
    for path in sorted(place.ledger.glob("part-*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows.append((row["seq"], row["id"], row["user"], row["total"]))
    return rows


def totals_rows(place: Place) -> list[tuple[str, int, int, int]]:
    rows = []
    for path in sorted(place.totals.glob("part-*.csv")):
        header, *lines = path.read_text().splitlines()
        assert header == "user,n,total,top", path
        for line in lines:
            user, n, total, top = line.split(",")
            rows.append((user, int(n), int(total), int(top)))
    return rows


def check(place: Place, *, complete: bool = True) -> None:
    """The output is exactly what the input says; `complete=False`: a correct prefix of it."""
    expected_ledger, histories = expected(place.input)
    found = ledger_rows(place)
    for number, (wanted, got) in enumerate(zip(expected_ledger, found, strict=False)):
        assert got == wanted, f"ledger row {number} is {got} instead of {wanted}"
    assert len(found) <= len(expected_ledger), f"{len(found) - len(expected_ledger)} ledger rows too many"
    changes = totals_rows(place)
    assert_no_repetition(changes)
    for user, n, total, top in changes:
        assert 1 <= n <= len(histories[user]), f"{user} has {n} orders"
        wanted_change = histories[user][n - 1]
        assert (n, total, top) == wanted_change, f"{user}: {(n, total, top)} instead of {wanted_change}"
    if complete:
        assert len(found) == len(expected_ledger), f"{len(expected_ledger) - len(found)} ledger rows missing"
        merged: dict[str, tuple[int, int, int]] = {}
        for user, *change in sorted(changes):
            merged[user] = (change[0], change[1], change[2])
        assert merged == {user: history[-1] for user, history in histories.items()}


def assert_no_repetition(changes: list[tuple[str, int, int, int]]) -> None:
    repeated = [row for row, times in Counter(changes).items() if times > 1]
    assert not repeated, f"visible twice: {repeated[0]}"


def expected(input: Path) -> tuple[list[tuple[int, int, str, int]], dict[str, list[tuple[int, int, int]]]]:
    """The ledger in order, and per user every true (n, total, top) that the changelog may show."""
    ledger: list[tuple[int, int, str, int]] = []
    totals: Counter[str] = Counter()
    histories: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for seq, row in enumerate(read_input(input), 1):
        user, cents = row["user"], row["amount"] * 200
        totals[user] += row["amount"]
        ledger.append((seq, row["id"], user, totals[user]))
        n, total, top = histories[user][-1] if histories[user] else (0, 0, 0)
        histories[user].append((n + 1, total + cents, cents if cents > top else top))
    return ledger, histories


# --- children ---------------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """How one process of a run ended."""

    exit: int
    epoch: int
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def killed(self) -> bool:
        return self.exit == -signal.SIGKILL


def driver(place: Place, options: dict[str, Any]) -> None:
    """Body of a child: run to the end, report, exit with the error's code."""
    os.environ["HOLDFAST_FP_LOG"] = str(place.hits)
    os.environ["TMPDIR"] = tempfile.tempdir = str(place.root)
    failpoints.arm(options.get("fp_at_start", ""))
    if options.get("defect"):
        from defects import DEFECTS

        DEFECTS[options["defect"]]()
    report: dict[str, Any] = {}
    code = 0
    pace = Pace(place, **{name: options[name] for name in PACE & options.keys()})
    try:
        made = topology(
            place,
            mode=options.get("mode", "async"),
            pace=pace,
            max_consecutive_resets=options.get("max_resets", 5),
        )
        report["status"] = run_local(made, place.url, take_over=options.get("take_over", False)).as_dict()
    except HoldfastError as error:
        report["error"], report["message"] = type(error).__name__, str(error)
        code = error.exit_code
    except BaseException as error:
        report["error"], report["message"] = type(error).__name__, str(error)
        code = 99
    (place.root / f"report-{os.getpid()}").write_text(json.dumps(report))
    os._exit(code)


def start(place: Place, **options: Any) -> Any:
    place.root.mkdir(parents=True, exist_ok=True)
    return forked.start(driver, place, options)


def finish(place: Place, process: Any, timeout: float = forked.HUNG_S) -> Life:
    """Wait; a hang is a failure."""
    code = forked.finish(process, timeout)
    fired(DRIVER_KILLED, int(code == -signal.SIGKILL))
    path = place.root / f"report-{process.pid}"
    report = json.loads(path.read_text()) if path.exists() else {}
    return Life(code, newest_epoch(place.store), report)


def live(place: Place, **options: Any) -> Life:
    """One life of the driver."""
    return finish(place, start(place, **options))


@dataclass(frozen=True)
class Firing:
    """One fault, and how far the run was."""

    name: str
    epoch: int
    last_row: int


@dataclass
class Story:
    """What the log of all lives tells."""

    rows_read: int = 0
    firings: list[Firing] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)

    @property
    def rows_replayed(self) -> int:
        return self.rows_read - ROWS


def story(place: Place) -> Story:
    told = Story()
    epoch, last = 0, -1
    for line in place.hits.read_text().splitlines() if place.hits.exists() else []:
        words = line.split()
        if words[0] == "#":
            epoch, last = int(words[4]), int(words[3])
            told.rows_read += last - int(words[2]) + 1
        elif words[0].startswith("!"):
            told.firings.append(Firing(words[0][1:], epoch, last))
        else:
            told.hits[words[0]] += 1
    return told


def events(place: Place, kind: str | None = None) -> list[Any]:
    from holdfast.store.urls import open_store

    found = open_store(place.url).events()
    return [event for event in found if kind is None or event.kind == kind]
