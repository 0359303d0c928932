"""An operator in the driver that declares its state: kept through failures, and its size is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.state.values import codec
from holdfast.testing import compare_sequence, run_local

ROWS = [(f"w{n % 7}", n) for n in range(60)]


class Totals(hf.Operator):
    failures = 0
    totals = hf.Map(str, int)
    last = hf.Window(int, rows=4)

    def process(self, row: Any, port: int) -> Iterator[tuple[str, int, str]]:
        if row.n == 40 and Totals.failures:
            Totals.failures -= 1
            raise ValueError("a passing weakness")
        self.totals[row.word] = self.totals.get(row.word, 0) + row.n
        self.last.append(row.n)
        yield row.word, self.totals[row.word], repr(self.last)


def test_declared_variables_survive_a_failure(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shelf = request.node.name
    topology = hf.Topology("declared")
    source = topology.source(hf.Rows(ROWS, "word string, n long", rows_per_step=3), name="rows")
    totals = source.consistent("r", period=0.01).apply(
        Totals, "word string, total long, last string", name="totals"
    )
    totals.sink(hf.MemorySink(shelf), name="out")
    Totals.failures = 1
    status = run_local(topology, store=f"file:{tmp_path}/store")
    found = hf.MemorySink.rows(shelf)
    hf.MemorySink.clear(shelf)
    assert status["regions"]["r"]["resets"] == 1
    seen: dict[str, int] = {}
    wanted = []
    for number, (word, n) in enumerate(ROWS):
        seen[word] = seen.get(word, 0) + n
        last = [each for _, each in ROWS[max(0, number - 3) : number + 1]]
        wanted.append({"word": word, "total": seen[word], "last": repr(last)})
    compare_sequence(wanted, found)
    (size,) = [e["counts"]["totals"]["state_bytes"] for e in status["elements"].values() if e["counts"]]
    exact = len(codec.encode({"totals": seen, "last": [56, 57, 58, 59]}))
    assert size == pytest.approx(exact, rel=0.1)


class Half(hf.Operator):
    """Fails once behind a change of its state."""

    totals = hf.Map(str, int)
    failures = 0

    def process(self, row: Any, port: int) -> tuple[str, int]:
        if row.n < 10 and Half.failures:
            time.sleep(0.03)  # so that some rows are out in a step before the one that fails
        self.totals[row.word] = self.totals.get(row.word, 0) + 1
        if row.n == 10 and Half.failures:
            Half.failures -= 1
            raise ValueError("a passing weakness")
        return row.word, self.totals[row.word]


def test_a_step_that_was_undone_outside_of_regions_is_not_in_the_next_checkpoint(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shelf = request.node.name

    def run(rows: int) -> list[dict[str, Any]]:
        topology = hf.Topology("half")
        source = topology.source(
            hf.Rows([("w", n) for n in range(rows)], "word string, n long", rows_per_step=1), name="rows"
        )
        made = source.apply(Half, "word string, total long", name="half")
        made.checkpoint(0.01).sink(hf.MemorySink(shelf), name="out")
        run_local(topology, store=f"file:{tmp_path}/store")
        return hf.MemorySink.rows(shelf)

    Half.failures = 1
    before = run(20)[-1]["total"]
    after = run(21)[-1]["total"]
    hf.MemorySink.clear(shelf)
    assert Half.failures == 0
    assert after == before + 1
