"""Topologies to try, good ones and ones with a defect that only a fault shows."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

import holdfast as hf
from holdfast.language.connectors import Sink, StepId
from holdfast.language.stream import Stream

ROWS = [(n, f"u{n % 7}", n * 3) for n in range(1200)]
SCHEMA = "id long, user string, cents long"


def orders(name: str = "shop", consistent: bool = True) -> tuple[hf.Topology, Stream]:
    topology = hf.Topology(name)
    stream = topology.source(hf.Rows(ROWS, SCHEMA), name="orders")
    return topology, stream.consistent("books") if consistent else stream


class Lines(Sink):
    """Appends lines to a file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def redirected(self, place: Path) -> Lines:
        return type(self)(place / "lines")

    def visible_rows(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def write_spark(self, frame: Any, step: StepId) -> int | None:
        return self.write_arrow(frame.toArrow(), step)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        self._append(table.to_pylist())
        return int(table.num_rows)

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(json.dumps({"id": row["id"], "cents": row["cents"]}) + "\n" for row in rows)
        with self.path.open("a") as file:
            file.write(data)


class Doubling(Lines):
    """Says that rows appear once, and takes none back."""

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    reason: ClassVar[str] = "its author says so"


class Losing(Lines):
    """Keeps rows in memory until there are many, though their epoch is over."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept: list[Mapping[str, Any]] = []

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        self._kept += table.to_pylist()
        if len(self._kept) >= 300:
            self.close()
        return int(table.num_rows)

    def close(self) -> None:
        self._append(self._kept)
        self._kept = []


class Forgetful:
    """Numbers rows, and hides the number from checkpoints by its name."""

    def __init__(self) -> None:
        self._seen = 0

    def process(self, row: Any, port: int) -> Any:
        self._seen += 1
        yield (row.id, self._seen)


class Stuck:
    """Never comes back if it was restored."""

    def __init__(self) -> None:
        self.seen = 0
        self._born = False

    def process(self, row: Any, port: int) -> Any:
        self._born = self._born or self.seen == 0
        while not self._born:
            time.sleep(0.1)
        self.seen += 1
        yield (row.id, self.seen)


def stamped(table: pa.Table) -> pa.Table:
    """Each row with a number that nobody can repeat."""
    return table.append_column("luck", pa.array([random.random() for _ in range(table.num_rows)]))
