"""Names that users may give: none of them makes two things in a store, or on their way to it, one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing import run_local

LONG = 100


@pytest.fixture(params=["file", "sqlite", "memory"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = request.param
    return f"memory:{tmp_path.name.strip('_')}" if kind == "memory" else f"{kind}:{tmp_path}/store"


class Tally(hf.Operator):
    counts = hf.Map(int, int)

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int]]:
        self.counts[row.n % 10] = self.counts.get(row.n % 10, 0) + 1
        yield row.n, sum(self.counts.values())


def rows(count: int) -> hf.Rows:
    return hf.Rows([(n,) for n in range(count)], "n long", rows_per_step=4)


def totals(shelf: str) -> list[int]:
    return [row["total"] for row in hf.MemorySink.rows(shelf)]


def test_a_region_called_autonomous_keeps_its_hands_off_operators_outside_of_regions(
    shelf: str, where: str
) -> None:
    for count in (20, 40, 60):  # each run begins with a sweep of what no epoch needs
        made = hf.Topology("both")
        inside = made.source(rows(count), name="inside").consistent(name="autonomous")
        inside.apply(Tally, "n long, total long", name="counted").sink(
            hf.MemorySink(f"{shelf}-in"), name="in"
        )
        loose = made.source(rows(count), name="loose").isolate()
        tally = loose.apply(Tally, "n long, total long", name="tally").checkpoint(every=0.000001)
        tally.sink(hf.MemorySink(shelf), name="out")
        run_local(made, where)
    assert totals(shelf) == list(range(1, 61)), "the state of the operator outside survived every run"
    assert totals(f"{shelf}-in") == list(range(1, 61))
    hf.MemorySink.clear(f"{shelf}-in")


def test_own_checkpoints_of_an_earlier_version_are_found_and_not_swept(
    shelf: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(count: int) -> None:
        made = hf.Topology("both")
        made.source(rows(count), name="inside").consistent(name="autonomous").sink(
            hf.MemorySink(f"{shelf}-in"), name="in"
        )
        loose = made.source(rows(count), name="loose").isolate()
        tally = loose.apply(Tally, "n long, total long", name="tally").checkpoint(every=0.000001)
        tally.sink(hf.MemorySink(shelf), name="out")
        run_local(made, where)

    with monkeypatch.context() as before:
        before.setattr("holdfast.checkpoint.stored_names.OUTSIDE", "autonomous")
        run(20)
    assert open_store(where).keys("tally@autonomous")
    run(20)  # nothing new: what is there stays where it is
    run(40)
    run(60)
    assert totals(shelf) == list(range(1, 61))
    assert open_store(where).keys("tally@autonomous") == [], "what nobody needs any more is gone"
    hf.MemorySink.clear(f"{shelf}-in")


class Fork(hf.Operator):
    def process(self, row: Any, port: int) -> None:
        self.submit({"n": row.n}, 0)
        self.submit({"n": -row.n}, 1)


class Plus(hf.Operator):
    def process(self, row: Any, port: int) -> Iterator[tuple[int]]:
        yield (row.n + 1000,)


@pytest.mark.fault("S05")
def test_the_second_output_of_an_operator_is_not_another_operators_first(shelf: str, where: str) -> None:
    made = hf.Topology("ports")
    source = made.source(rows(40), name="rows").consistent(name="r")
    _, second = made.operator(Fork, [source.isolate()], schemas=["n long", "n long"], name="a")
    third = source.isolate().apply(Plus, "n long", name="a.1")
    for number, stream in enumerate((second, third)):
        stream.isolate().apply(Tally, "n long, total long", name=f"t{number}").sink(
            hf.MemorySink(f"{shelf}-{number}"), name=f"out{number}"
        )
    run_local(made, where)
    found = [[row["n"] for row in hf.MemorySink.rows(f"{shelf}-{number}")] for number in (0, 1)]
    for number in (0, 1):
        hf.MemorySink.clear(f"{shelf}-{number}")
    assert found == [[-n for n in range(40)], [n + 1000 for n in range(40)]]


@pytest.mark.fault("S18")
def test_names_as_long_as_they_may_be_can_be_stored(shelf: str, where: str) -> None:
    region = RegionName("r" * LONG)
    made = hf.Topology("long")
    source = made.source(rows(20), name="s" * LONG).consistent(name=region)
    source.isolate().apply(Tally, "n long, total long", name="t" * LONG).sink(
        hf.MemorySink(shelf), name="o" * LONG
    )
    run_local(made, where)
    assert totals(shelf) == list(range(1, 21))
    assert open_store(where).epochs(region)


@pytest.mark.parametrize("name", ["a\n", "a@b", "~a", "a~b", "a+b", "a=b", "x" * (LONG + 1)])
@pytest.mark.fault("S05")
def test_names_that_could_be_taken_for_two_are_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="cannot be the name"):
        hf.Topology("t").source(rows(1), name="s").consistent(name=name)
    with pytest.raises(TopologyError, match="cannot be the name"):
        hf.Topology("t").source(rows(1), name=name)
