"""A loop over a variable that it changes: where Python says no, the region parks with the row named, nothing of the loop is in the state, and
the mended program goes on; with a lifetime such a loop is fine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import RegionParkedError
from holdfast.testing import run_local

ROWS = [(f"k{n % 7}", n) for n in range(60)]
SCHEMA = "n long, known array<string>"
careful = False


def prune(seen: Any, row: Any) -> list[str]:
    """Each tenth row what is older than five rows goes."""
    seen[row.k] = row.n
    if row.n % 10 == 9:
        for key in list(seen) if careful else seen:
            if seen[key] < row.n - 5:
                del seen[key]
    return sorted(seen)


class Prunes(hf.Operator):
    seen = hf.Map(str, int)

    def process(self, row: Any, port: int) -> Any:
        yield {"n": row.n, "known": prune(self.seen, row)}


class PrunesPerKey(hf.KeyedOperator):
    seen = hf.Map(str, int)

    def process(self, row: Any, key: Any) -> Any:
        yield {"n": row.n, "known": prune(self.seen, row)}


class Lasting(hf.KeyedOperator):
    seen = hf.Map(str, int, ttl=1e6)

    def process(self, row: Any, key: Any) -> Any:
        yield {"n": row.n, "known": prune(self.seen, row)}


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "driver": lambda rows: rows.apply(Prunes, SCHEMA, name="op"),
    "keyed": lambda rows: rows.keyed("one", PrunesPerKey, SCHEMA, name="op"),
    "lasting": lambda rows: rows.keyed("one", Lasting, SCHEMA, name="op", on="at", delay=0),
}


def golden() -> list[dict[str, Any]]:
    seen: dict[str, int] = {}
    found = []
    for k, n in ROWS:
        seen[k] = n
        if n % 10 == 9:
            seen = {key: last for key, last in seen.items() if last >= n - 5}
        found.append({"n": n, "known": sorted(seen)})
    return found


def run(kind: str, here: Path) -> None:
    topology = hf.Topology("pruned")
    rows = [(k, n, 1, datetime.fromtimestamp(n, UTC)) for k, n in ROWS]
    source = hf.Rows(rows, "k string, n long, one long, at timestamp", rows_per_step=8)
    given = topology.source(source, name="in").consistent(name="r", period=0.01)
    OPERATORS[kind](given).sink(hf.FileSink(str(here / "out"), "json"), name="out")
    run_local(topology, f"file:{here}/store")


def came_out(here: Path) -> list[dict[str, Any]]:
    import json

    rows = [
        json.loads(line) for path in (here / "out").glob("*.json") for line in path.read_text().splitlines()
    ]
    return sorted(rows, key=lambda row: row["n"])


@pytest.mark.parametrize("kind", ["driver", "keyed"])
@pytest.mark.fault("R11")
def test_a_loop_that_changes_its_map_parks_the_region_and_costs_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RegionParkedError, match="dictionary changed size during iteration"):
        run(kind, tmp_path)
    assert came_out(tmp_path) == golden()[: len(came_out(tmp_path))]
    monkeypatch.setitem(globals(), "careful", True)
    run(kind, tmp_path)
    assert came_out(tmp_path) == golden()


@pytest.mark.fault("R11")
def test_with_a_lifetime_a_loop_goes_through_what_there_was(tmp_path: Path) -> None:
    run("lasting", tmp_path)
    assert came_out(tmp_path) == golden()
