"""A small program for tests of stores: orders (json files) → hosted ledger → files; orders → totals per user → files.

The oracle reads the input with code of its own. `extra` adds an operator, `ledger=False` and `totals=False` remove one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local, submit_local

REGION = "books"


class Ledger:
    """Numbers the orders."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return (self.seen, row.id)


class Books:
    """Input, store and output of one run after another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input = root / "input"
        self.store = f"file:{root / 'store'}"
        self.input.mkdir(parents=True, exist_ok=True)
        self.rows: list[dict[str, Any]] = []

    def add(self, count: int) -> None:
        """One more input file."""
        begin = len(self.rows)
        new = [{"id": n, "user": f"u{n % 3}", "amount": n * 7 % 11} for n in range(begin, begin + count)]
        self.rows += new
        path = self.input / f"orders-{begin:05}.json"
        written = path.with_name(f".{path.name}")  # a run that is under way shall not find half of it
        written.write_text("".join(json.dumps(row) + "\n" for row in new))
        written.rename(path)

    def topology(self, out: str = "out", **parts: Any) -> hf.Topology:
        settings = {"trigger": "manual", **parts.get("settings", {})}  # one epoch per run, the final one
        made = hf.Topology("books")
        source = hf.Files(str(self.input), "json", "id long, user string, amount long", max_rows_per_step=7)
        orders = made.source(source, name="orders").consistent(REGION, **settings)
        if parts.get("ledger", True):
            rows = orders.isolate().apply(Ledger, "seq long, id long", name="ledger")
            rows.sink(hf.FileSink(str(self.root / out / "ledger"), "json"), name="ledger_out")
        if parts.get("totals", True):
            totals = orders.aggregate("user", n=hf.count(), total=hf.sum("amount"), name="totals")
            totals.sink(hf.FileSink(str(self.root / out / "totals"), "json"), name="totals_out")
        if parts.get("extra", False):
            most = orders.isolate().aggregate("user", most=hf.max("amount"), name="most")
            most.sink(hf.FileSink(str(self.root / out / "most"), "json"), name="most_out")
        return made

    def run(self, store: str | None = None, out: str = "out", **parts: Any) -> dict[str, Any]:
        return run_local(self.topology(out, **parts), store or self.store)

    def submit(self, store: str | None = None, out: str = "out", **parts: Any) -> Any:
        return submit_local(self.topology(out, **parts), store or self.store)

    def written(self, out: str, name: str) -> list[dict[str, Any]]:
        """Visible rows of a sink."""
        files = sorted((self.root / out / name).glob("part-*.json"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def totals(self, out: str = "out") -> dict[str, tuple[int, int]]:
        """The last row of each user."""
        last: dict[str, tuple[int, int]] = {}
        for row in self.written(out, "totals"):
            last[row["user"]] = max(last.get(row["user"], (0, 0)), (row["n"], row["total"]))
        return last

    def expected_totals(self, begin: int = 0) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row in self.rows[begin:]:
            n, total = found[row["user"]]
            found[row["user"]] = (n + 1, total + row["amount"])
        return dict(found)

    def ledger(self, out: str = "out") -> list[tuple[int, int]]:
        return sorted((row["seq"], row["id"]) for row in self.written(out, "ledger"))

    def files(self, out: str = "out") -> dict[str, bytes]:
        """Everything under an output directory, staging and ledgers too."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted((self.root / out).rglob("*"))
            if path.is_file()
        }
