"""Makes the golden store of the present format: `.venv/bin/python tests/golden/make.py`.

A small job is killed between publishing an epoch and making it visible. Its input, store, output and what must become
of it are kept under tests/golden/format-N for ever: every later version must be able to finish it. Never make an old
format's directory again; a new format gets a new one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.language.operators.aggregates import avg, count, max, min, sum
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files, Rows
from holdfast.store.base import FORMAT
from holdfast.testing import run_local

HERE = Path(__file__).resolve().parent
FILES, ROWS_PER_FILE = 3, 40
MTIME_NS = 1_600_000_000_000_000_000
"""Version control keeps no times; the source knows its files by size and time."""


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


def topology(root: Path, loose_rows: int = 10) -> Topology:
    made = Topology("golden")
    files = Files(str(root / "input"), "json", "id long, user string, amount long", max_rows_per_step=7)
    orders = made.source(files, name="orders").consistent("books", period=0.02)
    register = orders.isolate().apply(
        Register,
        "seen long, id long, total long, big string, recent string, names long",
        name="register",
    )
    register.sink(FileSink(str(root / "output" / "register"), "json"), name="register_out")
    paced = orders.map_arrow(slowly, "id long, user string, amount long", name="slowly")
    positive = paced.isolate().map_arrow(unchanged, "id long, user string, amount long", name="unchanged")
    totals = positive.isolate().aggregate(
        "user", n=count(), total=sum("amount"), low=min("amount"), top=max("amount"), mean=avg("amount"),
        name="totals",
    )  # fmt: skip
    totals.sink(FileSink(str(root / "output" / "totals"), "json"), name="totals_out")
    loose = made.source(Rows([(n,) for n in range(loose_rows)], "n long"), name="loose")
    tally = loose.apply(Tally, "n long, seen long", name="tally").checkpoint(every=0.01)
    tally.sink(FileSink(str(root / "output" / "tally"), "json"), name="tally_out")
    return made


def make_input(directory: Path) -> None:
    directory.mkdir(parents=True)
    for number in range(FILES):
        ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        rows = [{"id": i, "user": f"u{i * 7 % 5}", "amount": i * 37 % 101} for i in ids]
        (directory / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    set_times(directory)


def set_times(directory: Path) -> None:
    for path in directory.iterdir():
        os.utime(path, ns=(MTIME_NS, MTIME_NS))


def rows_of(directory: Path) -> list[dict[str, Any]]:
    paths = sorted(directory.glob("part-*.json"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def kill_in_the_middle(root: Path) -> None:
    """Run until the seventh commit of a sink: three epochs are visible, the fourth is only published."""
    shutil.rmtree(root, ignore_errors=True)
    make_input(root / "input")
    killed = {**os.environ, "HOLDFAST_FP": "sink.commit.begin=kill@7", "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run([sys.executable, __file__, "--run", str(root)], env=killed)
    assert done.returncode == -9, f"the job ended with {done.returncode} instead of being killed"


def has_kept_batches(root: Path) -> bool:
    manifests = sorted((root / "store" / "epochs" / "books").glob("*.manifest"))
    if not manifests:
        return False
    body = json.loads(manifests[-1].read_bytes().split(b"\n", 2)[2])
    return any(part["kept"] for part in body["parts"].values())


def main() -> None:
    target = HERE / f"format-{FORMAT}"
    if target.exists():
        sys.exit(
            f"{target} exists; a golden store is made once. Remove it yourself if it was never released."
        )
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "golden"
        while not has_kept_batches(root):
            kill_in_the_middle(root)
        # tmp is private to a process that is dead.
        shutil.copytree(root, target, ignore=shutil.ignore_patterns("tmp"))
        run_local(topology(root, loose_rows=12), f"file:{root / 'store'}")
        expected = {name: rows_of(root / "output" / name) for name in ("register", "totals", "tally")}
        (target / "expected.json").write_text(json.dumps(expected, indent=0))
    size = len(b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file()))
    print(f"{target}: {size} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_local(topology(Path(sys.argv[2])), f"file:{sys.argv[2]}/store")
    else:
        main()
