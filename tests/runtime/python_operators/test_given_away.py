"""Operators that change what they gave away, or got: what was submitted stays as it was then, and a row that is done again is the row that
came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import run_local

N = 25
SCHEMA = "n long, all array<long>, by struct<last: long, all: array<long>>, raw binary"
GOLDEN = [
    {"n": n, "all": list(range(n + 1)), "by": {"last": n, "all": list(range(n + 1))}, "raw": bytes(range(n + 1))}
    for n in range(N)
]  # fmt: skip


class Growing:
    """What both kinds of operators do: it gives away the very objects that it goes on to change. Names with "_" are no state."""

    def begin(self) -> None:
        self._all: list[int] = []
        self._by: dict[str, Any] = {"last": 0, "all": self._all}
        self._raw = bytearray()

    def grow(self, n: int) -> None:
        self._all.append(n)
        self._by["last"] = n
        self._raw.append(n)

    def spoil(self) -> None:
        """As a program would that makes use of its memory again."""
        self._all[:] = [-1] * len(self._all)
        self._by["last"] = -1
        self._raw[:] = bytes(len(self._raw))


class Submits(hf.Operator, Growing):
    def open(self) -> None:
        self.begin()

    def process(self, row: Any, port: int) -> None:
        self.grow(row.n)
        self.submit({"n": row.n, "all": self._all, "by": self._by, "raw": self._raw})
        if row.n == N - 1:
            self.spoil()


class Yields(Submits):
    """A tuple is no row that somebody could change, but what is in it is."""

    def process(self, row: Any, port: int) -> Iterator[tuple[Any, ...]]:  # type: ignore[override]
        self.grow(row.n)
        yield (row.n, self._all, self._by, self._raw)
        if row.n == N - 1:
            self.spoil()


class ListOfValues(Submits):
    """One list for all rows."""

    def open(self) -> None:
        self.begin()
        self._row = [0, self._all, self._by, self._raw]

    def process(self, row: Any, port: int) -> None:
        self.grow(row.n)
        self._row[0] = row.n
        self.submit(self._row)
        if row.n == N - 1:
            self.spoil()
            self._row[0] = -1


class Threaded(hf.Operator, Growing):
    replayable = True

    def __init__(self) -> None:
        self.begin()
        self.n = 0

    def run(self, context: Any) -> None:
        self.begin()
        with context.permit():
            while self.n < N:
                self.grow(self.n)
                context.submit({"n": self.n, "all": self._all, "by": self._by, "raw": self._raw})
                self.n += 1
            self.spoil()


class Keyed(hf.KeyedOperator, Growing):
    def open(self) -> None:
        self.begin()

    def process(self, row: Any, key: Any) -> None:
        self.grow(row.n)
        self.submit({"n": row.n, "all": self._all, "by": self._by, "raw": self._raw})
        if row.n == N - 1:
            self.spoil()


OPERATORS: dict[str, Callable[[hf.Topology, Any], Any]] = {
    "submits": lambda t, rows: rows.apply(Submits, SCHEMA, name="op"),
    "yields": lambda t, rows: rows.apply(Yields, SCHEMA, name="op"),
    "list of values": lambda t, rows: rows.apply(ListOfValues, SCHEMA, name="op"),
    "guarded": lambda t, rows: rows.apply(Submits, SCHEMA, name="op", poison="park"),
    "threaded": lambda t, rows: t.operator(Threaded, [], schema=SCHEMA, name="op").consistent(name="r"),
    "keyed": lambda t, rows: rows.keyed("one", Keyed, SCHEMA, name="op"),
}


def came_out(
    name: str, build: Callable[[hf.Topology, Any], Any], here: Path, rows: Any = None
) -> list[dict[str, Any]]:
    hf.MemorySink.clear(name)
    topology = hf.Topology("given")
    source = hf.Rows(rows or [(n, 1) for n in range(N)], "n long, one long" if rows is None else NESTED)
    given = topology.source(source, name="in").consistent(name="r" if name != "threaded" else "unused")
    build(topology, given).sink(hf.MemorySink(name), name="out")
    if name == "threaded":
        given.sink(hf.MemorySink("unused"), name="unused")
    run_local(topology, f"file:{here}/store")
    try:
        return hf.MemorySink.rows(name)
    finally:
        hf.MemorySink.clear(name)


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.fault("I13")
def test_what_was_submitted_stays_as_it_was(kind: str, tmp_path: Path) -> None:
    assert came_out(kind, OPERATORS[kind], tmp_path) == GOLDEN


# --- tables that share their memory with NumPy and pandas -------------------------------------------------------------


class Buffered(hf.Operator):
    """One array for all batches."""

    def open(self) -> None:
        self._buffer = np.zeros(N, dtype=np.int64)

    def process_batch(self, table: pa.Table, port: int) -> Iterator[pa.Table]:
        for n in table["n"].to_pylist():
            self._buffer[:] = n
            yield pa.table({"n": self._buffer[:1], "twice": self._buffer[:1] * 2})
        self._buffer[:] = -1


class Frame(hf.Operator):
    """A DataFrame that is kept and added to."""

    def open(self) -> None:
        self._frame = pd.DataFrame({"n": [0], "twice": [0]})

    def process_batch(self, table: pa.Table, port: int) -> Iterator[pa.RecordBatch]:
        for _ in range(table.num_rows):
            yield pa.RecordBatch.from_pandas(self._frame)
            self._frame["n"] += 1
            self._frame["twice"] += 2


class KeyedBuffer(hf.KeyedOperator):
    def open(self) -> None:
        self._buffer = np.zeros(N, dtype=np.int64)

    def process_batch(self, table: pa.Table, key: Any) -> Iterator[pa.Table]:
        for n in table["n"].to_pylist():
            self._buffer[:] = n
            yield pa.table({"n": self._buffer[:1], "twice": self._buffer[:1] * 2})
        self._buffer[:] = -1


TWICE = "n long, twice long"
TABLES: dict[str, Callable[[hf.Topology, Any], Any]] = {
    "numpy": lambda t, rows: rows.apply(Buffered, TWICE, name="op"),
    "pandas": lambda t, rows: rows.apply(Frame, TWICE, name="op"),
    "keyed numpy": lambda t, rows: rows.keyed("one", KeyedBuffer, TWICE, name="op"),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.fault("I13")
def test_a_table_does_not_follow_the_memory_it_was_made_of(kind: str, tmp_path: Path) -> None:
    assert came_out(kind, TABLES[kind], tmp_path) == [{"n": n, "twice": 2 * n} for n in range(N)]


# --- rows that come, are changed, and are done again ------------------------------------------------------------------

NESTED = "n long, one long, items array<long>"
ITEMS = [(n, 1, [n, n + 1]) for n in range(N)]


def is_bad(n: int) -> bool:
    return n % 5 == 3


class Consumes(hf.Operator):
    """Takes the list of a row apart while it adds it up."""

    def __init__(self) -> None:
        self.total = 0
        self.tried = 0

    def process(self, row: Any, port: int) -> Iterator[dict[str, Any]]:
        while row.items:
            self.total += row.items.pop()
        yield {"n": row.n, "total": self.total}
        if is_bad(row.n):
            raise ValueError("bad")


class KeyedConsumes(hf.KeyedOperator):
    total = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Iterator[dict[str, Any]]:
        while row.items:
            self.total += row.items.pop()
        yield {"n": row.n, "total": self.total}
        if is_bad(row.n):
            raise ValueError("bad")


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "driver": lambda rows: rows.apply(Consumes, "n long, total long", name="op", on_error="stream"),
    "poison": lambda rows: rows.apply(
        Consumes, "n long, total long", name="op", poison=hf.Poison("quarantine", after=2)
    ),
    "keyed": lambda rows: rows.keyed(
        "one", KeyedConsumes, "n long, total long", name="op", on_error="stream"
    ),
}


@pytest.mark.parametrize("kind", CONSUMERS)
@pytest.mark.fault("I13")
def test_a_row_that_is_done_again_is_the_row_that_came(kind: str, tmp_path: Path) -> None:
    """State goes back by doing the rows before it again."""

    def build(topology: hf.Topology, rows: Any) -> Any:
        made = CONSUMERS[kind](rows)
        made.errors.sink(hf.MemorySink("errors"), name="errors")
        return made

    hf.MemorySink.clear("errors")
    found = came_out(kind, build, tmp_path, ITEMS)
    told = [row["row"] for row in hf.MemorySink.rows("errors")]
    hf.MemorySink.clear("errors")
    total, golden = 0, []
    for n, _, items in ITEMS:
        if not is_bad(n):
            total += sum(items)
            golden.append({"n": n, "total": total})
    assert len(told) == sum(map(is_bad, range(N))), "the fault did not fire"
    assert found == golden
    assert all(
        f'"items": [{n}, {n + 1}]' in text for n, text in zip(filter(is_bad, range(N)), told, strict=True)
    )
