"""Plain attributes that are added to or taken from a Python operator between two runs on one store."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import MismatchError
from holdfast.state.variables.changed_attributes import taken_over
from holdfast.store.urls import open_store
from holdfast.testing import run_local


class Earlier(hf.Operator):
    def __init__(self) -> None:
        self.count = 0
        self.scratch = "made by __init__, deleted at the first row"

    def process(self, row: Any, port: int) -> Any:
        self.count += 1
        self.last = row.n  # made while it runs
        if hasattr(self, "scratch"):
            del self.scratch
        return row.n, f"{self.count}"


class Added(Earlier):
    def __init__(self) -> None:
        super().__init__()
        self.total = 1000

    def process(self, row: Any, port: int) -> Any:
        assert hasattr(self, "last") or not self.count, "what was made while it ran is there again"
        assert not self.count or not hasattr(self, "scratch"), "what was deleted stays deleted"
        super().process(row, port)
        self.total += row.n
        return row.n, f"{self.count} {self.total}"


class Renamed(hf.Operator):
    def __init__(self) -> None:
        self.counts = 0

    def process(self, row: Any, port: int) -> Any:
        raise AssertionError("nothing may run")


class WithVariable(Earlier):
    words = hf.Map(str, int)


class WithVariableAdded(Added):
    words = hf.Map(str, int)


def run(operator: Any, rows: int, store: str, shelf: str, consistent: bool = True) -> list[str]:
    topology = hf.Topology("changed")
    source = topology.source(hf.Rows([(n,) for n in range(rows)], "n long"), name="rows")
    source = source.consistent("r", period=0.02) if consistent else source
    made = source.apply(operator, "n long, what string", name="op")
    if not consistent:
        made.checkpoint(0.01)
    made.sink(hf.MemorySink(shelf), name="out")
    run_local(topology, store)
    return [row["what"] for row in hf.MemorySink.rows(shelf)]


@pytest.mark.parametrize(
    ("before", "after"), [(Earlier, Added), (WithVariable, WithVariableAdded)], ids=["whole", "in versions"]
)
def test_an_attribute_that_is_new_begins_as_in_a_fresh_instance(
    before: Any, after: Any, tmp_path: Path, shelf: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = f"file:{tmp_path}/store"
    run(before, 2, store, shelf)
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert run(after, 4, store, shelf) == ["1", "2", "3 1002", "4 1005"]
    assert "operator 'op': the stored state has no 'total'" in caplog.text
    told = [event.data for event in open_store(store).events() if event.kind == "operator.filled"]
    assert told == [{"operator": "op", "attributes": ["total"], "region": "r"}]
    caplog.clear()
    assert run(after, 5, store, shelf)[-1] == "5 1009"
    assert "has no" not in caplog.text


@pytest.mark.parametrize("before", [Earlier, WithVariable], ids=["whole", "in versions"])
def test_a_stored_attribute_without_a_place_is_refused_before_anything_runs(
    before: Any, tmp_path: Path, shelf: str
) -> None:
    store = f"file:{tmp_path}/store"
    run(before, 2, store, shelf)
    epochs = open_store(store).epochs("r")
    with pytest.raises(
        MismatchError, match=r"'op' has no attribute 'count' any more.*'counts' is new"
    ) as caught:
        run(Renamed, 4, store, shelf)
    assert "reset-operator" in caught.value.cure
    assert open_store(store).epochs("r") == epochs
    assert run(before, 3, store, shelf)[-1] == "3"


def test_outside_of_regions_the_same_holds(tmp_path: Path, shelf: str) -> None:
    store = f"file:{tmp_path}/store"
    run(Earlier, 2, store, shelf, consistent=False)
    with pytest.raises(MismatchError, match="has no attribute 'count' any more"):
        run(Renamed, 4, store, shelf, consistent=False)


def test_a_checkpoint_that_tells_no_attributes_is_taken_as_it_is() -> None:
    taken = taken_over("op", {"count": 1, "dynamic": 2}, None, {"count": 0, "total": 7}, ())
    assert (taken.state, taken.filled) == ({"count": 1, "dynamic": 2, "total": 7}, ("total",))


def test_an_attribute_that_became_a_declared_variable_has_a_place() -> None:
    taken = taken_over("op", {"count": 1}, ["count"], {}, ["count"])
    assert (taken.state, taken.filled) == ({"count": 1}, ())
