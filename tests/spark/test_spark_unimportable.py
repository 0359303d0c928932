"""What workers cannot import, or what cannot be sent to them, is told at once, with the cure: no reset can help."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing import MemorySink

MODULE = """
import holdfast as hf

class Passes(hf.KeyedOperator):
    def process(self, row, key):
        return {"n": row.n}

def doubled(table):
    return table
"""


@pytest.fixture
def only_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that the driver has and workers do not."""
    (tmp_path / "only_in_the_driver.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("only_in_the_driver")
    del sys.modules["only_in_the_driver"]


def resets(run: hf.Topology, spark: Any, where: str) -> tuple[TopologyError, list[str]]:
    told: list[str] = []
    with pytest.raises(TopologyError) as raised:
        run.run(
            spark=spark, store=where, until="available", subscribers=[lambda event: told.append(event.kind)]
        )
    return raised.value, told


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("verb", ["keyed", "map_arrow"])
def test_a_module_that_workers_do_not_have(
    verb: str, inside: bool, only_here: Any, spark: Any, tmp_path: Path
) -> None:
    made = hf.Topology("absent")
    rows = made.source(hf.Rows([(n, n % 2) for n in range(6)], "n long, k long"), name="rows")
    rows = rows.consistent("r") if inside else rows
    if verb == "keyed":
        rows = rows.keyed("k", only_here.Passes, "n long", name="op")
    else:
        rows = rows.map_arrow(only_here.doubled, "n long, k long", name="op")
    rows.sink(MemorySink("absent"), name="out")
    error, told = resets(made, spark, f"file:{tmp_path}/store")
    assert "No module named 'only_in_the_driver'" in error.message
    assert "--py-files" in error.cure
    assert told.count("region.reset") <= 1, "only the one with which the run begins"


def test_what_cannot_be_pickled(spark: Any, tmp_path: Path) -> None:
    lock = threading.Lock()

    class Locked(hf.KeyedOperator):
        def process(self, row: Any, key: Any) -> Any:
            with lock:
                return {"n": row.n}

    made = hf.Topology("locked")
    rows = made.source(hf.Rows([(n, n % 2) for n in range(6)], "n long, k long"), name="rows").consistent("r")
    rows.keyed("k", Locked, "n long", name="op").sink(MemorySink("locked"), name="out")
    error, told = resets(made, spark, f"file:{tmp_path}/store")
    assert "cannot pickle '_thread.lock'" in error.message
    assert "open()" in error.cure
    assert told.count("region.reset") <= 1
